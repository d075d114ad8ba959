//! Drives the binary as scripts do: options, outputs, exit codes.
#![cfg(feature = "cli")]

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const DIMENSION: usize = 8;
const ROWS: usize = 600;

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Run {
    fn from(output: Output) -> Self {
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

fn command<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_twindex"));
    command.args(args).stdin(Stdio::null());
    command
}

fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Run {
    command(args).output().unwrap().into()
}

/// Standard output of a run that must succeed without a word on standard error.
#[track_caller]
fn succeed<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> String {
    let run = run(args);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    run.out
}

/// A run that must fail with `code`, nothing on standard output and one line on standard error that has all `words`.
#[track_caller]
fn refuse<A: AsRef<OsStr>>(code: i32, words: &[&str], args: impl IntoIterator<Item = A>) {
    let run = run(args);
    assert_eq!(run.code, Some(code), "{}", run.err);
    assert_eq!(run.out, "");
    assert!(run.err.starts_with("error: ") && run.err.ends_with('\n'), "{:?}", run.err);
    assert_eq!(run.err.lines().count(), 1, "{:?}", run.err);
    for word in words {
        assert!(run.err.contains(word), "{:?} does not say {word:?}", run.err);
    }
}

/// A folder of one test and the files in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Builds `output` from `input` on one thread.
    #[track_caller]
    fn build(&self, input: &str, output: &str, more: &[&str]) -> String {
        let output = self.path(output);
        let args = ["build", "--input", input, "--output", &output, "--threads", "1"];
        succeed(args.iter().chain(more));
        output
    }

    /// The base vectors as .npy and an index of them.
    #[track_caller]
    fn base(&self) -> (String, String) {
        let base = self.write("base.npy", npy_f32(&vectors(ROWS), DIMENSION));
        let index = self.build(&base, "base.twx", &["--metric", "l2"]);
        (base, index)
    }
}

/// Pseudo-random components in steps of 1/64 between -8 and 8: all exactly representable as f16.
fn vectors(rows: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) % 1024) as f32 / 64.0 - 8.0
    };
    (0..rows * DIMENSION).map(|_| next()).collect()
}

fn npy(descr: &str, shape: &str, data: impl IntoIterator<Item = u8>) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut file = b"\x93NUMPY\x01\x00".to_vec();
    file.extend((header.len() as u16).to_le_bytes());
    file.extend(header.bytes());
    file.extend(data);
    file
}

fn npy_f32(values: &[f32], dimension: usize) -> Vec<u8> {
    let shape = format!("({}, {dimension})", values.len() / dimension);
    npy("<f4", &shape, values.iter().flat_map(|x| x.to_le_bytes()))
}

fn npy_u64(keys: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let keys: Vec<u64> = keys.into_iter().collect();
    npy("<u8", &format!("({},)", keys.len()), keys.iter().flat_map(|x| x.to_le_bytes()))
}

fn bundled(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wordnet").join(name);
    path.to_str().unwrap().to_owned()
}

/// The names in an object, sorted.
#[track_caller]
fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn keys(line: &Value) -> Vec<u64> {
    line["hits"].as_array().unwrap().iter().map(|hit| hit["key"].as_u64().unwrap()).collect()
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_format_builds_the_same_file() {
    let folder = Folder::new();
    let values = vectors(ROWS);
    let rows = || values.chunks_exact(DIMENSION);
    let shape = format!("({ROWS}, {DIMENSION})");
    let jsonl = |field: &str| -> String {
        rows().enumerate().map(|(i, row)| format!("{{\"id\": {i}, \"{field}\": {row:?}}}\n")).collect()
    };
    let mut fbin: Vec<u8> = [ROWS as u32, DIMENSION as u32].iter().flat_map(|x| x.to_le_bytes()).collect();
    fbin.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    let fvecs: Vec<u8> = rows()
        .flat_map(|row| {
            let dimension = (DIMENSION as i32).to_le_bytes();
            dimension.into_iter().chain(row.iter().flat_map(|x| x.to_le_bytes()))
        })
        .collect();
    let halves = values.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes());
    let inputs = [
        folder.write("a.f4.npy", npy_f32(&values, DIMENSION)),
        folder.write("a.f2.npy", npy("<f2", &shape, halves)),
        folder.write("a.f8.npy", npy("<f8", &shape, values.iter().flat_map(|&x| f64::from(x).to_le_bytes()))),
        folder.write("a.fbin", fbin),
        folder.write("a.fvecs", fvecs),
        folder.write("a.jsonl", jsonl("embedding")),
        folder.write("named.jsonl", jsonl("v")),
    ];
    let options = ["--metric", "cosine", "--seed", "7", "--m", "8", "--ef-construction", "40"];
    let mut files = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let field: &[&str] = if input.contains("named") { &["--field", "v"] } else { &[] };
        let output = folder.build(input, &format!("{i}.twx"), &[&options[..], field].concat());
        files.push(std::fs::read(output).unwrap());
    }
    for (file, input) in files.iter().zip(&inputs) {
        assert!(*file == files[0], "{input} gives another file than {}", inputs[0]);
    }
    let other = folder.build(&inputs[0], "other.twx", &[&options[..3], &["8"], &options[4..]].concat());
    assert!(std::fs::read(other).unwrap() != files[0], "the seed makes no difference");
}

#[test]
fn deterministic_builds_give_the_same_file_on_any_number_of_threads() {
    let folder = Folder::new();
    let base = folder.write("base.npy", npy_f32(&vectors(6000), DIMENSION));
    let build = |name: &str, more: &[&str]| {
        let output = folder.path(name);
        let options = ["--metric", "l2", "--m", "6", "--ef-construction", "24"];
        let args = ["build", "--input", &base, "--output", &output];
        succeed(args.iter().chain(&options).chain(more));
        std::fs::read(output).unwrap()
    };
    let one = build("one.twx", &["--deterministic", "--threads", "1"]);
    for threads in ["2", "5"] {
        assert!(build("more.twx", &["--deterministic", "--threads", threads]) == one, "{threads} threads");
    }
    assert!(build("all.twx", &["--deterministic"]) == one, "all cores");
    assert!(build("plain.twx", &["--threads", "1"]) != one, "the option makes no difference");
}

#[test]
fn build_reports_what_scripts_read() {
    let folder = Folder::new();
    let input = folder.write("base.npy", npy_f32(&vectors(ROWS), DIMENSION));
    let json = folder.path("build.json");
    let index = folder.build(&input, "x.twx", &["--metric", "ip", "--json", &json]);
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let expected = [
        "anonymous_bytes",
        "cpu_seconds",
        "dimension",
        "encoding",
        "file_bytes",
        "metric",
        "originals",
        "peak_rss_bytes",
        "rows",
        "seconds",
    ];
    assert_eq!(names(&report), expected);
    assert_eq!((&report["encoding"], &report["originals"]), (&"f32".into(), &"none".into()));
    assert_eq!(report["rows"], ROWS);
    assert_eq!(report["dimension"], DIMENSION);
    assert_eq!(report["metric"], "ip");
    assert_eq!(report["file_bytes"], std::fs::metadata(&index).unwrap().len());
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    if cfg!(unix) {
        assert!(report["cpu_seconds"].as_f64().unwrap() > 0.0);
        assert!(report["peak_rss_bytes"].as_u64().unwrap() > (ROWS * DIMENSION * 4) as u64);
    }
    if cfg!(target_os = "linux") {
        let [anonymous, peak] = ["anonymous_bytes", "peak_rss_bytes"].map(|name| report[name].as_u64().unwrap());
        assert!((ROWS * DIMENSION * 4) as u64 <= anonymous && anonymous <= peak, "{report}");
    }
    let args = ["build", "--input", &input, "--output", &index, "--metric", "ip", "--index", "flat", "--json", "-"];
    let report: Value = serde_json::from_str(&succeed(args)).unwrap();
    assert_eq!(names(&report), expected);
}

#[test]
fn build_reads_more_rows_than_a_batch() {
    // 4,096 rows are read at once; keys must go on where the batch before ended.
    let folder = Folder::new();
    let rows = 4096 + 3;
    let input = folder.write("base.npy", npy_f32(&vectors(rows), DIMENSION));
    let keys_file = folder.write("keys.npy", npy_u64((0..rows as u64).map(|i| i * 10)));
    let plain = folder.build(&input, "plain.twx", &["--metric", "l2", "--index", "flat"]);
    let keyed = folder.build(&input, "keyed.twx", &["--metric", "l2", "--index", "flat", "--keys", &keys_file]);
    let last = format!("{:?}", &vectors(rows)[(rows - 1) * DIMENSION..]);
    for (index, key) in [(plain, rows as u64 - 1), (keyed, (rows as u64 - 1) * 10)] {
        let lines = json_lines(&succeed(["search", &index, "--vector", &last, "--k", "1", "--json"]));
        assert_eq!(keys(&lines[0]), [key]);
    }
}

#[test]
fn search_prints_the_nearest() {
    let folder = Folder::new();
    let (base, index) = folder.base();
    let seventh = format!("{:?}", &vectors(ROWS)[7 * DIMENSION..8 * DIMENSION]);

    let line = &json_lines(&succeed(["search", &index, "--vector", &seventh, "--json"]))[0];
    assert_eq!(names(line), ["hits", "query"]);
    assert_eq!(names(&line["hits"][0]), ["distance", "key", "reranked"]);
    assert_eq!(line["hits"][0]["reranked"], false);
    assert_eq!(keys(line).len(), 10);
    assert_eq!((&line["hits"][0]["key"], &line["hits"][0]["distance"]), (&7.into(), &0.0.into()));

    // The neighbours of key 7 are the same without itself, one more of them.
    let like = &json_lines(&succeed(["search", &index, "--like", "7", "--k", "9", "--json"]))[0];
    assert_eq!(keys(like), keys(line)[1..]);
    assert_eq!((names(like), &like["source"]), (vec!["hits", "query", "source"], &"original".into()));

    let exact = succeed(["search", &index, "--queries", &base, "--k", "3", "--exact", "--json"]);
    let wide = succeed(["search", &index, "--queries", &base, "--k", "3", "--ef", "600", "--json"]);
    assert_eq!(json_lines(&exact).len(), ROWS);
    assert_eq!(exact, wide);
    for (i, line) in json_lines(&exact).iter().enumerate() {
        assert_eq!(line["query"], i);
        assert_eq!(line["hits"][0]["distance"], 0.0);
    }

    let text = succeed(["search", &index, "--vector", &seventh, "--k", "2"]);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 3);
    assert_eq!(words[0], ["rank", "key", "distance"]);
    assert_eq!(words[1], ["1", "7", "0"]);
    let text = succeed(["search", &index, "--queries", &base, "--k", "1"]);
    assert!(text.contains("query 0\n") && text.contains(&format!("query {}\n", ROWS - 1)));
}

#[test]
fn bench_measures_recall_and_speed() {
    let folder = Folder::new();
    let (base, index) = folder.base();
    let (json, csv) = (folder.path("bench.json"), folder.path("bench.csv"));
    let bench = |more: &[&str]| -> Value {
        let args = ["bench", &index, "--queries", &base, "--rounds", "2", "--json", &json, "--csv", &csv];
        let table = succeed(args.iter().chain(more));
        assert!(table.contains("recall@"), "{table}");
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap()
    };
    let efs = |report: &Value| -> Vec<Option<u64>> {
        report["results"].as_array().unwrap().iter().map(|row| row["ef"].as_u64()).collect()
    };

    let report = bench(&["--exact", "--ef", "4,10,64,600", "--k", "10"]);
    let memory = ["open_anonymous_bytes", "open_ms", "open_rss_bytes", "originals", "peak_rss_bytes"];
    assert_eq!(names(&report), [&["encoding", "index_bytes"][..], &memory, &["results", "truth"]].concat());
    if cfg!(target_os = "linux") {
        let bytes = |name: &str| report[name].as_u64().unwrap();
        assert!(0 < bytes("open_anonymous_bytes") && bytes("open_anonymous_bytes") < bytes("open_rss_bytes"));
        assert!(bytes("open_rss_bytes") <= bytes("peak_rss_bytes"));
    }
    let said = |name: &str| report[name].as_str().unwrap();
    assert_eq!((said("encoding"), said("originals"), said("truth")), ("f32", "none", "originals"));
    assert_eq!(report["index_bytes"], std::fs::metadata(&index).unwrap().len());
    // 4 is raised to k, and then there already.
    assert_eq!(efs(&report), [Some(10), Some(64), Some(600), None]);
    let rows = report["results"].as_array().unwrap();
    for row in rows {
        let expected =
            ["batch", "cpu_qps", "ef", "exact", "k", "p50_us", "p99_us", "qps", "recall", "rerank", "threads"];
        assert_eq!(names(row), expected);
        assert_eq!((&row["k"], &row["threads"], &row["batch"]), (&10.into(), &1.into(), &1.into()));
        assert_eq!(row["exact"], row["ef"].is_null());
        assert!(row["rerank"].is_null());
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert!(figure("qps") > 0.0 && figure("p50_us") > 0.0 && figure("p50_us") <= figure("p99_us"), "{row}");
        assert!(figure("recall") > 0.5 && figure("recall") <= 1.0, "{row}");
    }
    assert_eq!(rows[3]["recall"], 1.0);
    assert_eq!(rows[2]["recall"], 1.0);
    assert!(rows[0]["recall"].as_f64().unwrap() <= rows[1]["recall"].as_f64().unwrap());
    let table = std::fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "k,ef,exact,rerank,threads,batch,recall,qps,cpu_qps,p50_us,p99_us");
    assert_eq!(lines.len(), 5);
    assert!(lines[1].starts_with("10,10,false,,1,1,0.") || lines[1].starts_with("10,10,false,,1,1,1."), "{}", lines[1]);
    assert!(lines[4].starts_with("10,,true,,1,1,1.000000,"), "{}", lines[4]);

    assert_eq!(efs(&bench(&[])), [Some(16), Some(32), Some(64), Some(128)]);
    assert_eq!(efs(&bench(&["--exact", "--resident"])), [None]);
    assert_eq!(efs(&bench(&["--ef", "20", "--mmap", "--k", "1"])), [Some(20)]);
    let timed = bench(&["--ef", "20", "--threads", "2", "--seconds", "0.2"]);
    assert_eq!(timed["results"][0]["threads"], 2);
    let batched = bench(&["--exact", "--batch", "64", "--threads", "2"]);
    let row = &batched["results"][0];
    assert_eq!((&row["batch"], &row["threads"], &row["recall"]), (&64.into(), &2.into(), &1.0.into()));
    // Times are those of a call, none of which took longer than p99_us; a call answers 60 queries on average.
    assert!(row["qps"].as_f64().unwrap() * row["p99_us"].as_f64().unwrap() > 30e6, "{row}");
    let timed = bench(&["--exact", "--batch", "64", "--seconds", "0.1"]);
    assert!(timed["results"][0]["qps"].as_f64().unwrap() > 0.0);
    assert_eq!(bench(&["--k", "5000"])["results"][0]["k"], ROWS);

    let flat = folder.build(&base, "flat.twx", &["--metric", "l2", "--index", "flat"]);
    let report: Value =
        serde_json::from_str(&succeed(["bench", &flat, "--queries", &base, "--rounds", "1", "--json", "-"])).unwrap();
    assert_eq!(report["results"].as_array().unwrap().len(), 1);
    assert_eq!((&report["results"][0]["exact"], &report["results"][0]["recall"]), (&true.into(), &1.0.into()));
}

#[test]
fn bench_takes_the_truth_it_is_given() {
    let folder = Folder::new();
    let (base, _) = folder.base();
    let keys_file = folder.write("keys.npy", npy_u64((0..ROWS as u64).map(|i| 1000 + i)));
    let index = folder.build(&base, "keyed.twx", &["--metric", "l2", "--keys", &keys_file]);
    // Each base row is nearest to itself; a truth that is off by one is wrong everywhere.
    let truth = |name: &str, shift: usize| {
        let rows = (0..ROWS).map(|i| ((i + shift) % ROWS) as i32);
        folder.write(name, npy("<i4", &format!("({ROWS}, 1)"), rows.flat_map(i32::to_le_bytes)))
    };
    let (right, wrong) = (truth("right.npy", 0), truth("wrong.npy", 1));
    let bench = |truth: &str, more: &[&str]| {
        let args = ["bench", &index, "--queries", &base, "--k", "1", "--ef", "600", "--rounds", "1", "--json", "-"];
        run(args.iter().chain(&["--truth", truth]).chain(more))
    };
    let recall =
        |run: Run| -> Value { serde_json::from_str::<Value>(&run.out).unwrap()["results"][0]["recall"].clone() };
    assert_eq!(recall(bench(&right, &["--keys", &keys_file])), 1.0);
    assert_eq!(recall(bench(&wrong, &["--keys", &keys_file])), 0.0);

    let run = bench(&right, &[]);
    assert_eq!(run.code, Some(1));
    assert!(run.err.contains("row 0 names row 0") && run.err.contains("--keys"), "{}", run.err);
    refuse(1, &["right.npy", "1 columns, k is 10"], ["bench", &index, "--queries", &base, "--truth", &right]);
    let short = folder.write("short.npy", npy("<i4", "(1, 10)", [0; 40]));
    refuse(1, &["short.npy", "1 rows for 600 queries"], ["bench", &index, "--queries", &base, "--truth", &short]);
}

#[test]
fn info_tells_what_the_file_holds() {
    let folder = Folder::new();
    let (base, index) = folder.base();
    let info: Value = serde_json::from_str(&succeed(["info", &index, "--json"])).unwrap();
    let bytes = std::fs::metadata(&index).unwrap().len();
    for (name, value) in [
        ("kind", "hnsw".into()),
        ("metric", "l2".into()),
        ("dimension", DIMENSION.into()),
        ("rows", ROWS.into()),
        ("live", ROWS.into()),
        ("tombstones", 0.into()),
        ("m", 16.into()),
        ("ef_construction", 200.into()),
        ("seed", 0.into()),
        ("file_bytes", Value::from(bytes)),
    ] {
        assert_eq!(info[name], value, "{name}");
    }
    let sum = |list: &str| info[list].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("levels"), sum("degrees")), (ROWS as u64, ROWS as u64));
    let codes = info["sections"].as_array().unwrap().iter().find(|section| section["name"] == "CODES").unwrap();
    assert!(codes["bytes"].as_u64().unwrap() >= (ROWS * DIMENSION * 4) as u64);

    let text = succeed(["info", &index]);
    for word in ["hnsw", "l2", "600", "CODES", "links on level 0"] {
        assert!(text.contains(word), "{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let flat = folder.build(&base, "flat.twx", &["--metric", "l2", "--index", "flat"]);
    let info: Value = serde_json::from_str(&succeed(["info", &flat, "--json"])).unwrap();
    assert_eq!((&info["kind"], info.get("m")), (&"flat".into(), None));
    assert!(!succeed(["info", &flat]).contains("links"));
}

/// Bytes of a row's code, factors included.
fn stride(encoding: &str) -> usize {
    match encoding {
        "f32" => DIMENSION * 4,
        "f16" => DIMENSION * 2,
        "int8" => DIMENSION + 8,
        "int4" => DIMENSION / 2 + 8,
        "bits1" => DIMENSION / 8 + 8,
        other => panic!("{other}"),
    }
}

const ENCODINGS: [&str; 5] = ["f32", "f16", "int8", "int4", "bits1"];

fn fbin(values: &[f32], dimension: usize) -> Vec<u8> {
    let header = [(values.len() / dimension) as u32, dimension as u32];
    header.iter().flat_map(|x| x.to_le_bytes()).chain(values.iter().flat_map(|x| x.to_le_bytes())).collect()
}

fn info(index: &str) -> Value {
    serde_json::from_str(&succeed(["info", index, "--json"])).unwrap()
}

#[test]
fn every_encoding_is_built_verified_told_and_searched() {
    let folder = Folder::new();
    let base = folder.write("base.npy", npy_f32(&vectors(ROWS), DIMENSION));
    for encoding in ENCODINGS {
        let (json, name) = (folder.path("build.json"), format!("{encoding}.twx"));
        let index = folder.build(&base, &name, &["--metric", "l2", "--encoding", encoding, "--json", &json]);
        let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!((&report["encoding"], &report["originals"]), (&encoding.into(), &"none".into()));
        assert!(succeed(["verify", &index]).contains("intact (600 rows"));

        let told = info(&index);
        assert_eq!((&told["encoding"], &told["originals"]), (&encoding.into(), &"none".into()));
        let section = |name: &str| -> Option<f64> {
            let sections = told["sections"].as_array().unwrap();
            sections.iter().find(|section| section["name"] == name)?["bytes_per_row"].as_f64()
        };
        assert_eq!(section("CODES"), Some(stride(encoding) as f64));
        assert_eq!(section("FINGERPRINTS").unwrap_or(0.0), if encoding == "f32" { 0.0 } else { 4.0 });
        let quantized = ["int8", "int4", "bits1"].contains(&encoding);
        assert_eq!(told.get("rotated"), quantized.then_some(&true.into()));
        assert_eq!(told.get("centred"), quantized.then_some(&true.into()));
        let text = succeed(["info", &index]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains(encoding) && text.contains("B a row"), "{text}");
        assert_eq!((text.contains("rotation"), text.contains("centre ")), (quantized, quantized), "{text}");

        // Its own code is near a vector: nearest of all, unless a component is a bit.
        let own = &json_lines(&succeed(["search", &index, "--queries", &base, "--k", "1", "--json"]));
        let found = own.iter().enumerate().filter(|(i, line)| keys(line) == [*i as u64]).count();
        assert!(found >= if encoding == "bits1" { ROWS / 10 } else { ROWS * 9 / 10 }, "{encoding}: {found}");
        let like = &json_lines(&succeed(["search", &index, "--like", "7", "--json"]))[0];
        assert_eq!(like["source"], if encoding == "f32" { "original" } else { "code" });
        assert_eq!(keys(like).len(), 10);
        let text = succeed(["search", &index, "--like", "7"]);
        assert_eq!(text.contains("like key 7, as its code has it\n"), encoding != "f32", "{text}");

        let summary =
            succeed(["build", "--input", &base, "--output", &index, "--metric", "l2", "--encoding", encoding]);
        assert!(summary.contains(&format!("hnsw, {encoding}, ")), "{summary}");
        let table = succeed(["bench", &index, "--queries", &base, "--rounds", "1", "--ef", "16"]);
        let truth = if encoding == "f32" { "a scan of the originals\n" } else { "a scan of the codes" };
        assert!(table.contains(&format!(", {encoding}, ")) && table.contains(truth), "{table}");
    }
}

#[test]
fn rotation_and_centre_can_be_left_out() {
    let folder = Folder::new();
    let base = folder.write("base.npy", npy_f32(&vectors(ROWS), DIMENSION));
    let mut files = Vec::new();
    for (i, options) in [&[][..], &["--no-rotate"], &["--no-centre"], &["--no-rotate", "--no-centre"], &["--seed", "7"]]
        .into_iter()
        .enumerate()
    {
        let more = [&["--metric", "l2", "--index", "flat", "--encoding", "int4"], options].concat();
        let index = folder.build(&base, &format!("{i}.twx"), &more);
        let told = info(&index);
        assert_eq!(told["rotated"], !options.contains(&"--no-rotate"));
        assert_eq!(told["centred"], !options.contains(&"--no-centre"));
        assert_eq!(told["rotation_seed"], if i == 4 { 7 } else { 0 });
        let text = succeed(["info", &index]);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
        assert_eq!(line("rotation").ends_with("none"), options.contains(&"--no-rotate"), "{text}");
        assert_eq!(line("centre").ends_with("none"), options.contains(&"--no-centre"), "{text}");
        files.push(std::fs::read(index).unwrap());
    }
    for (i, file) in files.iter().enumerate() {
        assert_eq!(files.iter().position(|other| other == file), Some(i), "two settings give one file");
    }
}

#[test]
fn reranked_distances_are_those_of_the_originals() {
    let folder = Folder::new();
    let (base, exact) = folder.base();
    let queries = folder.write("queries.npy", npy_f32(&vectors(40), DIMENSION));
    let halves = vectors(ROWS).into_iter().flat_map(|x| half::f16::from_f32(x).to_le_bytes());
    let half = folder.write("half.npy", npy("<f2", &format!("({ROWS}, {DIMENSION})"), halves));
    let flat = folder.write("base.fbin", fbin(&vectors(ROWS), DIMENSION));
    let search = |index: &str, more: &[&str]| -> Vec<Value> {
        let args = ["search", index, "--queries", &queries, "--k", "5", "--exact", "--json"];
        json_lines(&succeed(args.iter().chain(more)))
    };
    let hits = |lines: &[Value]| -> Vec<(u64, String)> {
        let hits = lines.iter().flat_map(|line| line["hits"].as_array().unwrap().clone());
        hits.map(|hit| (hit["key"].as_u64().unwrap(), hit["distance"].to_string())).collect()
    };
    let right = hits(&search(&exact, &[]));
    for encoding in &ENCODINGS[1..] {
        let build = |originals: &str| {
            let options = ["--metric", "l2", "--encoding", encoding, "--originals", originals];
            folder.build(&base, &format!("{encoding}-{originals}.twx"), &options)
        };
        let (bare, with_f32) = (build("none"), build("f32"));
        // f16 codes are the originals in f16.
        let with_f16 = build(if *encoding == "f16" { "f32" } else { "f16" });
        assert_eq!(info(&with_f16)["originals"], if *encoding == "f16" { "f32" } else { "f16" });
        assert!(succeed(["info", &with_f32]).contains("ORIGINALS"));
        // 120 times 5 candidates are all 600 rows.
        for (index, more) in [
            (&bare, &["--originals", &base][..]),
            (&bare, &["--originals", &flat]),
            (&bare, &["--originals", &half]),
            (&with_f16, &[]),
            (&with_f32, &[]),
        ] {
            let got = search(index, &[more, &["--rerank", "120"]].concat());
            assert_eq!(hits(&got), right, "{index} {more:?}");
            assert!(got.iter().all(|line| line["hits"].as_array().unwrap().iter().all(|hit| hit["reranked"] == true)));
            let like = &json_lines(&succeed([&["search", index, "--like", "7", "--json"], more].concat()))[0];
            assert_eq!(like["source"], "original");
        }
        let by_code = search(&with_f32, &[]);
        assert!(by_code.iter().all(|line| line["hits"][0]["reranked"] == false));
        if *encoding != "f16" {
            assert!(hits(&by_code) != right, "{encoding}: codes are as good as originals");
        }
        let text = succeed(["search", &with_f32, "--like", "7", "--rerank", "2", "--k", "3"]);
        assert_eq!(text.lines().next().unwrap().split_whitespace().last(), Some("distance"));
        assert!(text.contains("reranked distance"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
    }
    // Of f32 the distances are exact as they are.
    assert_eq!(hits(&search(&exact, &["--rerank", "2"])), right);
}

#[test]
fn bench_reranks() {
    let folder = Folder::new();
    let (base, _) = folder.base();
    let (csv, truth) = (folder.path("bench.csv"), folder.path("truth.npy"));
    let index = folder.build(&base, "int4.twx", &["--metric", "l2", "--encoding", "int4"]);
    let kept = folder.build(&base, "kept.twx", &["--metric", "l2", "--encoding", "int4", "--originals", "f16"]);
    let bench = |index: &str, more: &[&str]| -> Value {
        let args = ["bench", index, "--queries", &base, "--rounds", "1", "--csv", &csv, "--json", "-"];
        serde_json::from_str(&succeed(args.iter().chain(more))).unwrap()
    };
    let said = |report: &Value| {
        ["encoding", "originals", "truth"].map(|name| report[name].as_str().unwrap().to_owned()).join(" ")
    };
    let recall = |report: &Value, at: usize| report["results"][at]["recall"].as_f64().unwrap();

    let by_code = bench(&kept, &["--ef", "600", "--exact"]);
    assert_eq!(said(&by_code), "int4 f16 originals");
    assert!(by_code["results"][0]["rerank"].is_null());
    assert!(recall(&by_code, 0) < 1.0 && recall(&by_code, 0) > 0.7, "{by_code}");
    let attached = ["--originals", &base, "--rerank", "2.5", "--ef", "4,20,64,600", "--exact"];
    for (report, expected) in [
        (bench(&kept, &["--rerank", "2.5", "--ef", "4,20,64,600", "--exact"]), "int4 f16 originals"),
        (bench(&index, &attached), "int4 attached originals"),
    ] {
        assert_eq!(said(&report), expected);
        let rows = report["results"].as_array().unwrap();
        // 4 and 20 are raised to the 25 rows that are reranked.
        let efs: Vec<_> = rows.iter().map(|row| row["ef"].as_u64()).collect();
        assert_eq!(efs, [Some(25), Some(64), Some(600), None]);
        assert!(rows.iter().all(|row| row["rerank"] == 2.5));
        assert!(recall(&report, 3) > recall(&by_code, 1), "{report}");
    }
    // 60 times 10 candidates are all rows.
    assert_eq!(bench(&kept, &["--rerank", "60", "--exact"])["results"][0]["recall"], 1.0);
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert!(lines.lines().nth(1).unwrap().starts_with("10,,true,60,1,1,1.000000,"), "{lines}");
    // What is measured against a scan of the codes is how well the graph finds them.
    let codes = bench(&index, &["--exact"]);
    assert_eq!((said(&codes).as_str(), recall(&codes, 0)), ("int4 none codes", 1.0));
    let identity = (0..ROWS as i32).flat_map(i32::to_le_bytes);
    std::fs::write(&truth, npy("<i4", &format!("({ROWS}, 1)"), identity)).unwrap();
    let given = bench(&index, &["--truth", &truth, "--k", "1", "--rerank", "20", "--originals", &base]);
    assert_eq!((said(&given).as_str(), recall(&given, 0)), ("int4 attached given", 1.0));
    let table = succeed(["bench", &index, "--queries", &base, "--originals", &base, "--rerank", "2", "--rounds", "1"]);
    for words in ["originals from ", "reranked: 2 × k rows", "recall against a scan of the originals"] {
        assert!(table.contains(words), "{table}");
    }
}

#[test]
fn wrong_originals_are_refused() {
    let folder = Folder::new();
    let (base, exact) = folder.base();
    let index = folder.build(&base, "int8.twx", &["--metric", "l2", "--encoding", "int8"]);
    let kept = folder.build(&base, "kept.twx", &["--metric", "l2", "--encoding", "int8", "--originals", "f32"]);
    let seventh = format!("{:?}", &vectors(ROWS)[7 * DIMENSION..8 * DIMENSION]);
    let search = |index: &str, originals: &str| -> Vec<String> {
        let args = ["search", index, "--vector", &seventh, "--rerank", "2", "--originals", originals];
        args.map(str::to_owned).to_vec()
    };
    let bench = |index: &str, originals: &str| -> Vec<String> {
        let args = ["bench", index, "--queries", &base, "--rerank", "2", "--originals", originals];
        args.map(str::to_owned).to_vec()
    };
    assert!(run(search(&index, &base)).out.contains("  7 "));

    // One component of a vector that is fetched: by a search, by `--like`, and by a bench.
    let mut values = vectors(ROWS);
    values[7 * DIMENSION + 3] += 1.0 / 64.0;
    let other = folder.write("other.npy", npy_f32(&values, DIMENSION));
    let words = ["other.npy: row 7", "another vector"];
    refuse(1, &words, search(&index, &other));
    refuse(1, &words, ["search", &index, "--like", "7", "--originals", &other]);
    refuse(1, &words, ["search", &index, "--queries", &base, "--rerank", "1", "--originals", &other]);
    refuse(1, &words, bench(&index, &other));
    // The right vectors in another order.
    let mut values = vectors(ROWS);
    values.rotate_left(DIMENSION);
    let moved = folder.write("moved.fbin", fbin(&values, DIMENSION));
    refuse(1, &["moved.fbin: row ", "another vector"], search(&index, &moved));

    let few = folder.write("few.npy", npy_f32(&vectors(ROWS - 1), DIMENSION));
    refuse(1, &["few.npy: 599 vectors for the 600 rows"], search(&index, &few));
    let narrow = folder.write("narrow.npy", npy_f32(&vectors(ROWS), DIMENSION / 2));
    refuse(1, &["narrow.npy", "dimension 8", "4 components"], bench(&index, &narrow));
    let doubles = vectors(ROWS).into_iter().flat_map(|x| f64::from(x).to_le_bytes());
    let doubles = folder.write("doubles.npy", npy("<f8", &format!("({ROWS}, {DIMENSION})"), doubles));
    refuse(1, &["doubles.npy", "f8"], search(&index, &doubles));
    let whole = npy_f32(&vectors(ROWS), DIMENSION);
    let short = folder.write("short.npy", &whole[..whole.len() - 1]);
    refuse(1, &["short.npy"], search(&index, &short));
    refuse(1, &["none.npy", "No such file"], search(&index, &folder.path("none.npy")));
    let lines = folder.write("base.jsonl", "[1]\n");
    refuse(1, &["base.jsonl", "extension"], search(&index, &lines));
    refuse(1, &["kept.twx", "kept originals"], search(&kept, &base));
    refuse(1, &["base.twx", "codes that are the originals"], bench(&exact, &base));

    for command in [vec!["search", &index, "--vector", &seventh], vec!["bench", &index, "--queries", &base]] {
        refuse(1, &["int8.twx", "no originals", "--originals"], command.iter().chain(&["--rerank", "2"]));
        for oversample in ["0.5", "0", "-1", "nan", "inf", "1000001", "x"] {
            let given = format!("--rerank={oversample}");
            refuse(2, &["--rerank", "1 to 1000000"], command.iter().chain(&[given.as_str()]));
        }
    }
}

#[test]
fn encodings_that_cannot_be_are_refused() {
    let folder = Folder::new();
    let (base, _) = folder.base();
    let output = folder.path("x.twx");
    let build = |input: &str, more: &[&str]| -> Vec<String> {
        let args = ["build", "--input", input, "--output", &output, "--metric", "l2"];
        args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    };
    refuse(2, &["int5", "int4"], build(&base, &["--encoding", "int5"]));
    refuse(2, &["int8", "f16"], build(&base, &["--encoding", "int8", "--originals", "int8"]));
    for more in [&["--originals", "f16"][..], &["--originals", "f32", "--encoding", "f32"]] {
        refuse(2, &["--originals", "f32"], build(&base, more));
    }
    refuse(2, &["--originals is read to rerank"], ["search", &base, "--vector", "0,0", "--originals", &base]);
    refuse(2, &["--originals f16", "--encoding f16"], build(&base, &["--encoding", "f16", "--originals", "f16"]));
    for option in ["--no-rotate", "--no-centre"] {
        refuse(2, &[option, "f32 is not quantized"], build(&base, &[option]));
        refuse(2, &[option, "f16 is not quantized"], build(&base, &[option, "--encoding", "f16"]));
    }
    // In the second batch of rows: the row's place in the file is told.
    let mut values = vectors(4100);
    values[4098 * DIMENSION + 5] = -70_000.0;
    let long = folder.write("long.npy", npy_f32(&values, DIMENSION));
    let words = ["long.npy", "vector 4098", "component 5", "7.000e4", "6.550e4"];
    refuse(1, &words, build(&long, &["--index", "flat", "--encoding", "f16"]));
    refuse(1, &words, build(&long, &["--index", "flat", "--encoding", "int8", "--originals", "f16"]));
    assert!(!Path::new(&output).exists(), "a refused build leaves a file");
    folder.build(&long, "y.twx", &["--metric", "l2", "--index", "flat", "--encoding", "int8"]);
    folder.build(&base, "z.twx", &["--metric", "l2", "--originals", "none"]);
}

/// Neither the vectors nor their originals are ever held whole where only codes are to be kept.
#[cfg(target_os = "linux")]
#[test]
fn a_build_takes_little_more_than_its_codes() {
    let folder = Folder::new();
    let (rows, dimension) = (40_000, 256);
    let values: Vec<f32> = vectors(rows * dimension / DIMENSION);
    let base = folder.write("base.npy", npy_f32(&values, dimension));
    let args = ["build", "--input", &base, "--output", &folder.path("x.twx"), "--metric", "l2", "--index", "flat"];
    let report: Value =
        serde_json::from_str(&succeed(args.iter().chain(&["--encoding", "int8", "--json", "-"]))).unwrap();
    let (peak, raw) = (report["peak_rss_bytes"].as_f64().unwrap(), (rows * dimension * 4) as f64);
    assert!(peak < 0.75 * raw, "{peak} of {raw} bytes");
}

#[test]
fn verify_finds_damage() {
    let folder = Folder::new();
    let (_, index) = folder.base();
    assert!(succeed(["verify", &index]).contains("intact (600 rows"));
    let bytes = std::fs::read(&index).unwrap();
    // Every 997th byte is a sample of all sections; the last byte is one of them.
    for at in (0..bytes.len()).step_by(997).chain([bytes.len() - 1]) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let path = folder.write("damaged.twx", damaged);
        refuse(1, &["damaged.twx"], ["verify", &path]);
    }
    let path = folder.write("short.twx", &bytes[..bytes.len() - 1]);
    refuse(1, &["short.twx"], ["verify", &path]);
    refuse(1, &["short.twx"], ["info", &path]);
    refuse(1, &["short.twx"], ["search", &path, "--like", "1"]);
    let path =
        folder.write("other.twx", b"PK\x03\x04 something else altogether, longer than any header is, over and over");
    for command in [vec!["verify", &path], vec!["info", &path], vec!["bench", &path, "--queries", "q.npy"]] {
        refuse(1, &["other.twx", "not a Twindex file"], command);
    }
}

#[test]
fn bad_input_is_refused_on_one_line() {
    let folder = Folder::new();
    let (base, index) = folder.base();
    let output = folder.path("x.twx");
    let build = |input: &str, more: &[&str]| -> Vec<String> {
        let args = ["build", "--input", input, "--output", &output, "--metric", "cosine"];
        args.iter().chain(more).map(|&arg| arg.to_owned()).collect()
    };

    // What is wrong with the command: 2.
    refuse(2, &["nope"], ["build", "--input", &base, "--output", &output, "--metric", "nope"]);
    refuse(2, &["--metric"], ["build", "--input", &base, "--output", &output]);
    refuse(2, &["--nope"], build(&base, &["--nope"]));
    refuse(2, &["--m", "257"], build(&base, &["--m", "257"]));
    refuse(2, &["--ef-construction"], build(&base, &["--ef-construction", "0"]));
    refuse(2, &["--threads"], build(&base, &["--threads", "0"]));
    refuse(2, &["flat"], build(&base, &["--index", "flat", "--m", "8"]));
    refuse(2, &["--field"], build(&base, &["--field", "v"]));
    refuse(2, &["--vector"], ["search", &index]);
    refuse(2, &["--like"], ["search", &index, "--like", "1", "--vector", "[1]"]);
    refuse(2, &["--vector", "3 components", "8"], ["search", &index, "--vector", "[1,2,3]"]);
    refuse(2, &["--vector", "not JSON"], ["search", &index, "--vector", "[1,NaN]"]);
    refuse(2, &["--vector", "beyond"], ["search", &index, "--vector", "[1,1e39]"]);
    refuse(2, &["--vector", "not JSON"], ["search", &index, "--vector", "[1,2,3,4,5,6,7,8] [1]"]);
    refuse(2, &["--vector", "one vector"], ["search", &index, "--vector", "[1,2,3,4,5,6,7,8]\n[1,2,3,4,5,6,7,8]"]);
    refuse(2, &["--k", "0"], ["search", &index, "--like", "1", "--k", "0"]);
    refuse(2, &["--ef"], ["search", &index, "--like", "1", "--ef", "10", "--exact"]);
    refuse(2, &["--mmap"], ["bench", &index, "--queries", &base, "--mmap", "--resident"]);
    refuse(2, &["--ef"], ["bench", &index, "--queries", &base, "--ef", "16,x"]);
    refuse(2, &["--seconds"], ["bench", &index, "--queries", &base, "--seconds", "0"]);
    refuse(2, &["frob"], ["frob"]);

    let spelled = folder.path("./base.npy");
    refuse(2, &["--output and --input"], ["build", "--input", &base, "--output", &spelled, "--metric", "l2"]);
    refuse(2, &["--output and --json"], build(&base, &["--json", &output]));
    // No report is written over what the command reads, or over another.
    refuse(2, &["--json and --input"], build(&base, &["--json", &base]));
    let report = folder.path("report");
    let bench = |more: &[&str]| {
        ["bench", &index, "--queries", &base].iter().chain(more).map(|&arg| arg.to_owned()).collect::<Vec<_>>()
    };
    refuse(2, &["--json and the index"], bench(&["--json", &index]));
    refuse(2, &["--csv and --queries"], bench(&["--csv", &spelled]));
    refuse(2, &["--json and --originals"], bench(&["--json", &report, "--originals", &report]));
    refuse(2, &["--json and --csv"], bench(&["--json", &report, "--csv", &report]));

    // What is wrong with a file: 1.
    let mut values = vectors(5);
    values[3 * DIMENSION + 2] = f32::NAN;
    let nan = folder.write("nan.npy", npy_f32(&values, DIMENSION));
    refuse(1, &["nan.npy, row 3", "component 2", "NaN"], build(&nan, &[]));
    // The batch before is full, so that the row's place in the file is not its place in the batch.
    let mut values = vectors(4100);
    values[4098 * DIMENSION..4099 * DIMENSION].fill(0.0);
    let zero = folder.write("zero.npy", npy_f32(&values, DIMENSION));
    refuse(1, &["zero.npy", "4098", "norm zero"], build(&zero, &["--index", "flat"]));
    refuse(1, &["none.npy", "No such file"], build(&folder.path("none.npy"), &[]));
    let csv = folder.write("a.csv", "1,2,3");
    refuse(1, &["a.csv", "extension"], build(&csv, &[]));
    let short = folder.write("short.npy", &npy_f32(&vectors(5), DIMENSION)[..100]);
    refuse(1, &["short.npy", "truncated"], build(&short, &[]));
    let ragged = folder.write("ragged.jsonl", "{\"embedding\": [1, 2]}\n{\"embedding\": [1]}\n");
    refuse(1, &["ragged.jsonl, line 2", "ragged"], build(&ragged, &[]));
    let wide = folder.write("wide.npy", npy("<f4", "(1, 65537)", vec![0; 65537 * 4]));
    refuse(1, &["wide.npy", "65537"], build(&wide, &[]));
    let few = folder.write("few.npy", npy_u64(0..3));
    refuse(1, &["few.npy", "3 keys for 600 vectors"], build(&base, &["--keys", &few]));
    let twice = folder.write("twice.npy", npy_u64((0..ROWS as u64).map(|i| i / 2)));
    refuse(1, &["key 0", "already"], build(&base, &["--keys", &twice]));
    let two = folder.write("two.jsonl", "[1, 2]\n[3, 4]\n");
    refuse(1, &["few.npy", "3 keys"], build(&two, &["--keys", &few]));
    let one = folder.write("one.npy", npy_u64(0..1));
    refuse(1, &["one.npy", "1 keys"], build(&two, &["--keys", &one]));
    assert!(!Path::new(&output).exists(), "a refused build leaves a file");
    let nowhere = folder.path("no/such/folder/x.twx");
    refuse(1, &["no folder"], ["build", "--input", &base, "--output", &nowhere, "--metric", "l2"]);

    refuse(1, &["none.twx", "No such file"], ["info", &folder.path("none.twx")]);
    refuse(1, &["key 600"], ["search", &index, "--like", "600"]);
    refuse(1, &["two.jsonl", "dimension 2", "8"], ["search", &index, "--queries", &two]);
    refuse(1, &["two.jsonl", "dimension 2", "8"], ["bench", &index, "--queries", &two]);
    let empty = folder.write("empty.npy", npy("<f4", "(0, 8)", []));
    refuse(1, &["empty.npy", "no queries"], ["bench", &index, "--queries", &empty]);
    let hollow = folder.build(&empty, "hollow.twx", &["--metric", "l2"]);
    refuse(1, &["hollow.twx", "no rows"], ["bench", &hollow, "--queries", &base]);
    assert_eq!(keys(&json_lines(&succeed(["search", &hollow, "--vector", "[1,2,3,4,5,6,7,8]", "--json"]))[0]), [0; 0]);
    refuse(1, &["base.f16.npy"], ["demo", "--data", folder.0.path().to_str().unwrap()]);
    let control = folder.path("a\nb.twx");
    refuse(1, &["a b.twx"], ["info", &control]);
}

/// Neither waits for a writer, nor reads without end, nor replaces them.
#[cfg(unix)]
#[test]
fn pipes_devices_and_folders_are_no_indexes() {
    use std::os::unix::fs::FileTypeExt;
    let folder = Folder::new();
    let (base, _) = folder.base();
    let pipe = folder.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let zero = "/dev/zero".to_owned();
    for path in [&pipe, &zero] {
        refuse(1, &["regular file"], ["info", path]);
        refuse(1, &["regular file"], ["bench", path, "--queries", &base, "--resident"]);
    }
    refuse(1, &["directory"], ["verify", folder.0.path().to_str().unwrap()]);
    refuse(1, &["regular file"], ["build", "--input", &base, "--output", &pipe, "--metric", "l2"]);
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let folder = Folder::new();
    let (base, index) = folder.base();
    for args in [
        vec!["search", &index, "--queries", &base, "--k", "100"],
        vec!["info", &index],
        vec!["--help"],
        vec!["verify", &index],
    ] {
        let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let run: Run = child.wait_with_output().unwrap().into();
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let help = succeed(["--help"]);
    for name in ["build", "bench", "search", "info", "verify", "demo"] {
        assert!(help.contains(name), "{help}");
    }
    assert!(succeed(["--version"]).contains(env!("CARGO_PKG_VERSION")));
    let nothing = run::<&str>([]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(2), ""));
    assert!(nothing.err.contains("Usage:"));
}

#[test]
fn the_demo_runs_on_the_bundled_set() {
    let folder = Folder::new();
    let index = folder.path("demo.twx");
    let text = succeed(["demo", "--output", &index]);
    assert!(text.contains("10,000 definitions"), "{text}");
    // The three nearest of a question, by the exact truth of the set.
    for line in ["\"he is out on bail\"", "bail out: free on bail", "bail: empty (a vessel) by bailing"] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(text.matches("\n  \"").count(), 12, "{text}");
    let recall = |ef: &str| -> f64 {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(ef)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(recall("128") >= 0.98, "{text}");
    assert!(recall("16") < recall("128"), "{text}");
    assert_eq!(recall("exact"), 1.0, "{text}");
    // Lines with a path are as long as the path.
    let long = text.lines().find(|line| line.chars().count() > 80 && !line.contains('/'));
    assert_eq!(long, None);

    assert!(succeed(["verify", &index]).contains("intact"));
    let queries = bundled("queries.f16.npy");
    let bench = |more: &[&str]| -> Value {
        let args = ["bench", &index, "--queries", &queries, "--rounds", "1", "--ef", "64", "--json", "-"];
        serde_json::from_str(&succeed(args.iter().chain(more))).unwrap()
    };
    // The bundled truth and the scan agree.
    let (given, scanned) = (bench(&["--truth", &bundled("truth.i32.npy"), "--k", "100"]), bench(&["--k", "100"]));
    assert_eq!(given["results"][0]["recall"], scanned["results"][0]["recall"]);
}
