use super::*;

fn npy(version: u8, descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    npy_with(version, &format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

fn npy_with(version: u8, dictionary: &str, data: &[u8]) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    let length = dictionary.len() + 1;
    if version == 1 {
        file.extend((length as u16).to_le_bytes());
    } else {
        file.extend((length as u32).to_le_bytes());
    }
    file.extend(dictionary.bytes());
    file.push(b'\n');
    file.extend(data);
    file
}

fn le<const N: usize, T: Copy>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&x| bytes(x)).collect()
}

fn fvecs(rows: &[&[f32]]) -> Vec<u8> {
    let mut file = Vec::new();
    for row in rows {
        file.extend((row.len() as i32).to_le_bytes());
        file.extend(le(row, f32::to_le_bytes));
    }
    file
}

fn fbin(rows: u32, dimension: u32, data: &[f32]) -> Vec<u8> {
    let mut file = le(&[rows, dimension], u32::to_le_bytes);
    file.extend(le(data, f32::to_le_bytes));
    file
}

fn read_all<R: Read>(reader: Result<VectorReader<R>>, batch: usize) -> Result<(usize, Vec<f32>)> {
    let mut reader = reader?;
    let (mut all, mut out) = (Vec::new(), vec![f32::NAN]);
    loop {
        match reader.next_batch(&mut out, batch) {
            Ok(0) => {
                assert!(out.is_empty());
                // The end stays the end.
                assert_eq!(reader.next_batch(&mut out, batch)?, 0);
                return Ok((reader.dimension(), all));
            }
            Ok(rows) => {
                assert!(rows <= batch);
                assert_eq!(out.len(), rows * reader.dimension());
                all.extend_from_slice(&out);
            }
            Err(e) => {
                assert!(out.is_empty(), "a failed batch leaves nothing behind");
                return Err(e);
            }
        }
    }
}

fn read_integers(file: &[u8]) -> Result<(usize, Vec<u64>)> {
    let mut reader = IntegerReader::npy("t.npy", file)?;
    let (mut all, mut out) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut out, 2)? > 0 {
        all.extend_from_slice(&out);
    }
    Ok((reader.columns(), all))
}

/// The refusal of `result`, which must be a `Dataset` error that contains each of `words`.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, words: &[&str]) {
    match result {
        Err(e @ Error::Dataset { .. }) => {
            let text = e.to_string();
            for word in words {
                assert!(text.contains(word), "{text:?} does not say {word:?}");
            }
            assert!(!text.contains('\n'), "{text:?} is more than one line");
        }
        other => panic!("a dataset error saying {words:?} expected, got {other:?}"),
    }
}

/// Hands out one byte a read, and an interruption before each.
struct Dribble<'a>(&'a [u8], bool);

impl Read for Dribble<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let n = self.0.len().min(out.len()).min(1);
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

const SIX: [f32; 6] = [1.0, -2.5, 0.0, 3.25, 1024.0, -0.125];

#[test]
fn every_float_type_version_and_byte_order_of_npy_reads_the_same() {
    let f16s: Vec<half::f16> = SIX.iter().map(|&x| half::f16::from_f32(x)).collect();
    let f64s: Vec<f64> = SIX.iter().map(|&x| x.into()).collect();
    let files = [
        ("<f2", le(&f16s, half::f16::to_le_bytes)),
        (">f2", le(&f16s, half::f16::to_be_bytes)),
        ("<f4", le(&SIX, f32::to_le_bytes)),
        (">f4", le(&SIX, f32::to_be_bytes)),
        ("<f8", le(&f64s, f64::to_le_bytes)),
        (">f8", le(&f64s, f64::to_be_bytes)),
    ];
    for version in [1, 2, 3] {
        for (descr, data) in &files {
            let file = npy(version, descr, "(2, 3)", data);
            for batch in [1, 2, 100] {
                let read = read_all(VectorReader::npy("v.npy", &file[..]), batch).unwrap();
                assert_eq!(read, (3, SIX.to_vec()), "{descr} version {version} batch {batch}");
            }
        }
    }
}

#[test]
fn fvecs_and_fbin_read_the_same_as_npy() {
    for batch in [1, 2, 100] {
        let file = fvecs(&[&SIX[..2], &SIX[2..4], &SIX[4..]]);
        assert_eq!(read_all(VectorReader::fvecs("v", &file[..]), batch).unwrap(), (2, SIX.to_vec()));
        let file = fbin(3, 2, &SIX);
        assert_eq!(read_all(VectorReader::fbin("v", &file[..]), batch).unwrap(), (2, SIX.to_vec()));
    }
}

#[test]
fn a_file_longer_than_a_block_reads_whole() {
    // 65,536 bytes are read at once: 17,001 components of f32 are one block and a bit, an odd number of them a row.
    let values: Vec<f32> = (0..17_001).map(|i| i as f32).collect();
    let file = fbin(3, 5667, &values);
    assert_eq!(read_all(VectorReader::fbin("v", &file[..]), 2).unwrap(), (5667, values));
}

#[test]
fn a_stream_that_dribbles_and_is_interrupted_reads_whole() {
    let file = npy(1, "<f4", "(2, 3)", &le(&SIX, f32::to_le_bytes));
    assert_eq!(read_all(VectorReader::npy("v", Dribble(&file, false)), 1).unwrap(), (3, SIX.to_vec()));
    let file = fvecs(&[&SIX[..3], &SIX[3..]]);
    assert_eq!(read_all(VectorReader::fvecs("v", Dribble(&file, false)), 1).unwrap(), (3, SIX.to_vec()));
}

#[test]
fn integers_read_from_every_type_and_byte_order() {
    let values = [0u64, 7, 2_147_483_647];
    let files = [
        ("<i4", le(&values, |x| (x as i32).to_le_bytes())),
        (">i4", le(&values, |x| (x as i32).to_be_bytes())),
        ("<u4", le(&values, |x| (x as u32).to_le_bytes())),
        (">u4", le(&values, |x| (x as u32).to_be_bytes())),
        ("<i8", le(&values, |x| (x as i64).to_le_bytes())),
        (">i8", le(&values, |x| (x as i64).to_be_bytes())),
        ("<u8", le(&values, u64::to_le_bytes)),
        (">u8", le(&values, u64::to_be_bytes)),
    ];
    for (descr, data) in &files {
        assert_eq!(read_integers(&npy(1, descr, "(3,)", data)).unwrap(), (1, values.to_vec()), "{descr}");
        assert_eq!(read_integers(&npy(1, descr, "(1, 3)", data)).unwrap(), (3, values.to_vec()), "{descr}");
    }
    let largest = npy(1, "<u8", "(1,)", &u64::MAX.to_le_bytes());
    assert_eq!(read_integers(&largest).unwrap().1, [u64::MAX]);
}

#[test]
fn negative_integers_are_refused_where_they_are() {
    let file = npy(1, "<i4", "(2, 2)", &le(&[1, 2, 3, -1], i32::to_le_bytes));
    refused(read_integers(&file), &["t.npy, row 1", "component 1", "-1"]);
}

#[test]
fn every_prefix_of_a_file_is_refused() {
    let file = npy(1, "<f2", "(2, 3)", &le(&SIX.map(half::f16::from_f32), half::f16::to_le_bytes));
    for length in 0..file.len() {
        refused(read_all(VectorReader::npy("v.npy", &file[..length]), 10), &["v.npy", "truncated"]);
    }
    let file = fbin(2, 3, &SIX);
    for length in 0..file.len() {
        refused(read_all(VectorReader::fbin("v.fbin", &file[..length]), 10), &["v.fbin", "truncated"]);
    }
    let file = npy(2, "<i8", "(3,)", &le(&[1, 2, 3], i64::to_le_bytes));
    for length in 0..file.len() {
        refused(read_integers(&file[..length]), &["t.npy", "truncated"]);
    }
    // Between two rows an .fvecs file may well end.
    let file = fvecs(&[&SIX[..3], &SIX[3..]]);
    refused(read_all(VectorReader::fvecs("v.fvecs", &file[..0]), 10), &["v.fvecs", "empty"]);
    for length in 1..file.len() {
        let read = read_all(VectorReader::fvecs("v.fvecs", &file[..length]), 10);
        if length == 16 {
            assert_eq!(read.unwrap(), (3, SIX[..3].to_vec()));
        } else {
            refused(read, &["v.fvecs, row", "truncated"]);
        }
    }
}

#[test]
fn truncation_names_the_row_it_happened_in() {
    let file = fbin(3, 2, &SIX[..5]);
    refused(read_all(VectorReader::fbin("v.fbin", &file[..]), 10), &["v.fbin, row 2", "3 rows"]);
}

#[test]
fn trailing_bytes_are_refused_before_the_last_batch_is_handed_out() {
    let mut file = fbin(2, 3, &SIX);
    file.push(0);
    let mut reader = VectorReader::fbin("v.fbin", &file[..]).unwrap();
    let mut out = Vec::new();
    assert_eq!(reader.next_batch(&mut out, 1).unwrap(), 1);
    refused(reader.next_batch(&mut out, 1), &["v.fbin", "trailing"]);
    assert!(out.is_empty());
    let mut file = npy(1, "<f4", "(0, 3)", &[]);
    assert_eq!(read_all(VectorReader::npy("v.npy", &file[..]), 1).unwrap(), (3, vec![]));
    file.push(0);
    refused(read_all(VectorReader::npy("v.npy", &file[..]), 1), &["v.npy", "trailing"]);
    let mut file = fvecs(&[&SIX[..3]]);
    file.extend([3, 0]);
    refused(read_all(VectorReader::fvecs("v.fvecs", &file[..]), 10), &["row 1", "truncated"]);
}

#[test]
fn what_f32_cannot_hold_is_refused_where_it_is() {
    let nan = fbin(2, 3, &[1.0, 2.0, 3.0, 4.0, f32::NAN, 6.0]);
    refused(read_all(VectorReader::fbin("v.fbin", &nan[..]), 10), &["v.fbin, row 1", "component 1", "NaN"]);
    refused(read_all(VectorReader::fbin("v.fbin", &nan[..]), 1), &["v.fbin, row 1", "component 1", "NaN"]);
    let inf = fvecs(&[&[1.0, 2.0], &[f32::NEG_INFINITY, 4.0]]);
    refused(read_all(VectorReader::fvecs("v.fvecs", &inf[..]), 10), &["v.fvecs, row 1", "component 0", "-inf"]);
    for (value, word) in [(1e39, "beyond the range of f32"), (f64::NAN, "NaN"), (f64::INFINITY, "inf")] {
        let file = npy(1, "<f8", "(1, 2)", &le(&[0.5, value], f64::to_le_bytes));
        refused(read_all(VectorReader::npy("v.npy", &file[..]), 10), &["row 0", "component 1", word]);
    }
    let half_inf = npy(1, "<f2", "(1, 1)", &half::f16::INFINITY.to_le_bytes());
    refused(read_all(VectorReader::npy("v.npy", &half_inf[..]), 10), &["row 0", "inf"]);
    // The largest f32, and half an ulp more than rounds down to it.
    let edge = npy(1, "<f8", "(1, 2)", &le(&[f32::MAX.into(), 3.4028235677973362e38], f64::to_le_bytes));
    assert_eq!(read_all(VectorReader::npy("v.npy", &edge[..]), 1).unwrap().1, [f32::MAX; 2]);
}

#[test]
fn ragged_rows_are_refused() {
    let file = fvecs(&[&SIX[..3], &SIX[..2]]);
    refused(read_all(VectorReader::fvecs("v.fvecs", &file[..]), 10), &["v.fvecs, row 1", "ragged", "2", "3"]);
    for dimension in [0, -1, i32::MIN] {
        let file = dimension.to_le_bytes();
        refused(VectorReader::fvecs("v.fvecs", &file[..]), &["row 0", &dimension.to_string()]);
    }
}

#[test]
fn absurd_promises_allocate_nothing() {
    let promises = ["(18446744073709551615, 4)", "(4, 18446744073709551615)", "(1, 9223372036854775808)"];
    for shape in promises {
        let file = npy(1, "<f4", shape, &[0; 16]);
        refused(VectorReader::npy("v.npy", &file[..]), &["v.npy", "more than memory can address"]);
    }
    for shape in ["(1000000000000, 4)", "(4, 1000000000000)", "(1, 2000000000000000000)"] {
        let file = npy(1, "<f4", shape, &[0; 16]);
        let mut reader = VectorReader::npy("v.npy", &file[..]).unwrap();
        let mut out = Vec::new();
        refused(reader.next_batch(&mut out, usize::MAX), &["v.npy, row", "truncated"]);
        assert!(out.capacity() < 1 << 16, "{} components reserved for 4", out.capacity());
    }
    let file = fbin(u32::MAX, 1 << 30, &SIX);
    let mut out = Vec::new();
    refused(VectorReader::fbin("v.fbin", &file[..]).unwrap().next_batch(&mut out, usize::MAX), &["truncated"]);
    let file = i32::MAX.to_le_bytes();
    refused(VectorReader::fvecs("v.fvecs", &file[..]).unwrap().next_batch(&mut out, usize::MAX), &["truncated"]);
    assert!(out.capacity() < 1 << 16);
    let mut header = b"\x93NUMPY\x02\x00".to_vec();
    header.extend(u32::MAX.to_le_bytes());
    refused(VectorReader::npy("v.npy", &header[..]), &["v.npy", "4294967295 bytes"]);
}

#[test]
fn hostile_npy_headers_are_refused() {
    let cases: &[(&str, &str)] = &[
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 4), }", "Fortran order"),
        ("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 4), }", "i4"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }", "one dimension"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "0 dimensions"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2), }", "3 dimensions"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 0), }", "0 components"),
        ("{'descr': '|f4', 'fortran_order': False, 'shape': (1, 4), }", "|f4"),
        ("{'descr': '<c8', 'fortran_order': False, 'shape': (1, 4), }", "<c8"),
        ("{'descr': '', 'fortran_order': False, 'shape': (1, 4), }", "dtype"),
        ("{'descr': 'é', 'fortran_order': False, 'shape': (1, 4), }", "dtype"),
        ("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1, 4), }", "structured"),
        ("{'descr': '<f4', 'fortran_order': Maybe, 'shape': (1, 4), }", "True or False"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, -4), }", "a length expected, '-' found"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 99999999999999999999), }", "not a length"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1 4), }", "expected"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,é), }", "a length expected, 'é' found"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "a length expected"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), } extra", "follows"),
        ("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }", "twice"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), 'more': 1, }", "more"),
        ("{'fortran_order': False, 'shape': (1, 4), }", "descr"),
        ("{'descr': '<f4', 'shape': (1, 4), }", "fortran_order"),
        ("{'descr': '<f4', 'fortran_order': False, }", "shape"),
        ("{'descr': '<f4", "no end"),
        ("{'descr'", "expected"),
        ("{", "expected"),
        ("", "expected"),
    ];
    for (dictionary, word) in cases {
        let file = npy_with(1, dictionary, &[0; 16]);
        refused(read_all(VectorReader::npy("v.npy", &file[..]), 10), &["v.npy", word]);
    }
    let many = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", "1,".repeat(1000));
    refused(VectorReader::npy("v.npy", &npy_with(1, &many, &[0; 16])[..]), &["dimensions"]);
    refused(VectorReader::npy("v.npy", &npy(4, "<f4", "(1, 4)", &[0; 16])[..]), &["version 4.0"]);
    refused(VectorReader::npy("v.npy", &b"PK\x03\x04 an .npz file"[..]), &["not an .npy file"]);
    refused(VectorReader::npy("v.npy", &b"\x93NUMPY\x01\x00\x02\x00\xff\xff"[..]), &["not text"]);
    refused(read_integers(&npy(1, "<f4", "(4,)", &[0; 16])), &["f4", "i4"]);
    refused(read_integers(&npy(1, "<i4", "(1, 1, 4)", &[0; 16])), &["3 dimensions"]);
}

#[test]
fn harmless_variants_of_the_npy_header_are_read() {
    let cases = [
        "{\"shape\": (2L, 3L), \"fortran_order\": False, \"descr\": \"<f4\"}",
        "  { 'descr' : '<f4' , 'fortran_order' : False , 'shape' : ( 2 , 3 , ) }      ",
    ];
    for dictionary in cases {
        let file = npy_with(3, dictionary, &le(&SIX, f32::to_le_bytes));
        assert_eq!(read_all(VectorReader::npy("v", &file[..]), 10).unwrap(), (3, SIX.to_vec()), "{dictionary}");
    }
}

#[test]
fn a_batch_of_no_rows_is_refused() {
    let file = fbin(2, 3, &SIX);
    let mut reader = VectorReader::fbin("v", &file[..]).unwrap();
    assert!(matches!(reader.next_batch(&mut Vec::new(), 0), Err(Error::InvalidParameter { name: "max_rows", .. })));
    let file = npy(1, "<i4", "(1,)", &[0; 4]);
    let mut reader = IntegerReader::npy("v", &file[..]).unwrap();
    assert!(matches!(reader.next_batch(&mut Vec::new(), 0), Err(Error::InvalidParameter { name: "max_rows", .. })));
}

#[test]
fn a_failing_source_is_named() {
    #[derive(Debug)]
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is on fire"))
        }
    }
    refused(VectorReader::npy("v.npy", Failing), &["v.npy", "on fire"]);
    refused(VectorReader::fvecs("v.fvecs", Failing), &["v.fvecs", "on fire"]);
    let file = fbin(2, 3, &[]);
    let mut reader = VectorReader::fbin("v.fbin", file.chain(Failing)).unwrap();
    refused(reader.next_batch(&mut Vec::new(), 1), &["v.fbin", "on fire"]);
}

#[cfg(feature = "mmap")]
mod by_path {
    use super::*;

    #[test]
    fn files_open_by_their_extension_and_show_their_length_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let files = [
            write("a.npy", &npy(1, "<f4", "(2, 3)", &le(&SIX, f32::to_le_bytes))),
            write("a.FBIN", &fbin(2, 3, &SIX)),
            write("a.fvecs", &fvecs(&[&SIX[..3], &SIX[3..]])),
        ];
        for path in &files {
            let reader = VectorReader::open(path, DEFAULT_FIELD).unwrap();
            assert_eq!((reader.rows(), reader.dimension()), (Some(2), 3), "{}", path.display());
            assert_eq!(read_all(Ok(reader), 10).unwrap(), (3, SIX.to_vec()));
        }

        let short = write("short.npy", &npy(1, "<f4", "(2, 3)", &[0; 20]));
        refused(VectorReader::open(short, DEFAULT_FIELD), &["short.npy", "truncated", "90"]);
        let long = write("long.fbin", &fbin(1, 3, &SIX));
        refused(VectorReader::open(long, DEFAULT_FIELD), &["long.fbin", "trailing"]);
        let ragged = write("ragged.fvecs", &fvecs(&[&SIX[..3], &SIX[..2]]));
        assert_eq!(VectorReader::open(ragged, DEFAULT_FIELD).unwrap().rows(), None);
        let keys = write("keys.npy", &npy(1, "<u8", "(2,)", &[0; 8]));
        refused(IntegerReader::open(keys), &["keys.npy", "truncated"]);

        refused(VectorReader::open(write("a.csv", b""), DEFAULT_FIELD), &["a.csv", "unknown extension"]);
        refused(VectorReader::open(folder.path().join("none.npy"), DEFAULT_FIELD), &["none.npy", "No such file"]);
        std::fs::create_dir(folder.path().join("d.npy")).unwrap();
        refused(VectorReader::open(folder.path().join("d.npy"), DEFAULT_FIELD), &["d.npy", "directory"]);
        refused(IntegerReader::open(folder.path().join("none.npy")), &["none.npy", "No such file"]);
    }
}

#[cfg(feature = "cli")]
mod json {
    use super::*;

    fn read(text: &str, batch: usize) -> Result<(usize, Vec<f32>)> {
        read_all(VectorReader::json_lines("v.jsonl", text.as_bytes(), "embedding"), batch)
    }

    #[test]
    fn the_field_is_found_whatever_stands_around_it() {
        let text = "{\"id\": 1, \"embedding\": [1, -2.5, 0], \"tags\": [{\"embedding\": [9]}]}\n\
                    \n  \r\n\
                    {\"embedding\":[3.25,1.024e3,-0.125],\"text\":\"\\u00e9\"}\r\n";
        for batch in [1, 2, 100] {
            assert_eq!(read(text, batch).unwrap(), (3, SIX.to_vec()));
        }
        assert_eq!(read("[1, -2.5]\n[0, 3.25]\n[1024, -0.125]", 2).unwrap(), (2, SIX.to_vec()));
        let other = VectorReader::json_lines("v", &b"{\"embedding\": \"no\", \"v\": [1]}"[..], "v");
        assert_eq!(read_all(other, 1).unwrap(), (1, vec![1.0]));
    }

    #[test]
    fn printed_components_come_back_to_the_bit() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let values: Vec<f32> = (0..2000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f32::from_bits((state >> 32) as u32)
            })
            .filter(|x| x.is_finite())
            .collect();
        let text: Vec<String> = values.iter().map(|x| format!("{x:e}")).collect();
        let got = read(&format!("[{}]", text.join(",")), 1).unwrap().1;
        for (a, b) in values.iter().zip(&got) {
            assert_eq!(a.to_bits(), b.to_bits(), "{a:e} came back as {b:e}");
        }
    }

    #[test]
    fn bad_lines_are_refused_by_number() {
        let cases: &[(&str, &[&str])] = &[
            ("", &["v.jsonl", "empty"]),
            ("\n \n", &["v.jsonl", "empty"]),
            ("[]", &["line 1", "no components"]),
            ("[1,2]\n[1,2,3]", &["line 2", "ragged", "3", "2 on line 1"]),
            ("\n[1,2]\n\n[1]", &["line 4", "ragged", "2 on line 2"]),
            ("[1,2]\n[]", &["line 2", "ragged"]),
            ("[1,2]\n{\"x\": [1,2]}", &["line 2", "no field", "embedding"]),
            ("{\"embedding\": [1], \"embedding\": [2]}", &["line 1", "twice"]),
            ("{\"embedding\": null}", &["line 1", "null", "an array of numbers"]),
            ("{\"embedding\": [1, null]}", &["line 1", "null"]),
            ("{\"embedding\": [1, \"2\"]}", &["line 1", "string"]),
            ("{\"embedding\": [[1]]}", &["line 1", "sequence"]),
            ("3", &["line 1", "an object with the field"]),
            ("[1, NaN]", &["line 1", "not JSON", "column 5"]),
            ("[1, 1e39]", &["line 1", "component 1", "beyond the range of f32"]),
            ("[1, 1e999]", &["line 1", "out of range"]),
            ("[1, 2", &["line 1", "not JSON"]),
            ("[1, 2] [3]", &["line 1", "not JSON"]),
            ("{\"embedding\": [1, 2]", &["line 1", "not JSON"]),
            ("\u{feff}[1]", &["line 1", "not JSON"]),
        ];
        for (text, words) in cases {
            refused(read(text, 10), words);
        }
        refused(read_all(VectorReader::json_lines("v", &b"[1]\n[\"\xff\"]"[..], "e"), 10), &["line 2"]);
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let text = format!("{{\"x\": {}{}, \"embedding\": [1]}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        assert_eq!(read(&text, 1).unwrap(), (1, vec![1.0]));
        refused(read(&"[".repeat(1 << 20), 1), &["line 1", "sequence"]);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let endless = VectorReader::json_lines("v.jsonl", std::io::repeat(b' '), "e");
        refused(endless.map(|_| ()), &["v.jsonl, line 1", "64 MiB"]);
    }
}
