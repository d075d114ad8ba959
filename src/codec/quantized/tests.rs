use super::*;
use crate::mix::mix;

/// Sums of four uniform numbers are normal enough.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        mix(self.0)
    }

    fn normal(&mut self) -> f32 {
        (0..4).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).sum::<f32>() * 0.866
    }

    fn vector(&mut self, dimension: usize) -> Vec<f32> {
        (0..dimension).map(|_| self.normal()).collect()
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

fn exact(metric: Metric, q: &[f32], x: &[f32]) -> f64 {
    match metric {
        Metric::L2 => dot(q, q) + dot(x, x) - 2.0 * dot(q, x),
        Metric::InnerProduct => -dot(q, x),
        Metric::Cosine => 1.0 - dot(q, x) / (dot(q, q) * dot(x, x)).sqrt(),
    }
}

fn encode<G: Grid>(codec: &QuantizedCodec<G>, x: &[f32]) -> Vec<u8> {
    let mut row = vec![0xFF; codec.stride()];
    codec.encode(x, &mut row, &mut Vec::new()).unwrap();
    codec.validate(&row, 1.0).unwrap();
    row
}

fn distance<G: Grid>(codec: &QuantizedCodec<G>, q: &[f32], row: &[u8]) -> f32 {
    let mut query = QuantizedQuery::default();
    codec.query(Kernels::best(), q, &mut query).unwrap();
    codec.distance(Kernels::best(), &query, row, 1.0)
}

/// ‖q − μ‖·‖r‖·tan θ / √d, with five times the usual tangent and, for short vectors, a whole error.
fn bound<G: Grid>(metric: Metric, q: &[f32], x: &[f32], centre: &[f32]) -> f64 {
    let tangent = (1.0 / f64::from(G::COSINE_SQUARED) - 1.0).sqrt() + 1.0 / f64::from(G::QUERY_MAX);
    let scale = |x: &[f32]| if metric == Metric::Cosine { dot(x, x).sqrt() } else { 1.0 };
    let off = |x: &[f32]| {
        let scale = scale(x) as f32;
        let off: Vec<f32> =
            x.iter().enumerate().map(|(i, x)| x / scale - centre.get(i).copied().unwrap_or(0.0)).collect();
        dot(&off, &off).sqrt()
    };
    let twice = if metric == Metric::L2 { 2.0 } else { 1.0 };
    twice * 6.0 * off(q) * off(x) * tangent / (q.len() as f64).sqrt() + 1e-5 * (1.0 + off(q) * off(x))
}

fn estimates_are_as_near_as_documented<G: Grid>() {
    let mut random = Random(1);
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        for d in [1usize, 2, 3, 7, 8, 15, 16, 33, 100, 127, 385] {
            for rotate in [false, true] {
                for centred in [false, true] {
                    let shift = if centred { 3.0 } else { 0.0 };
                    let centre =
                        if centred { vec![if metric == Metric::Cosine { 0.1 } else { 3.0 }; d] } else { vec![] };
                    let codec = QuantizedCodec::<G>::new(d, metric, rotate.then_some(5)).centred(centre.clone());
                    for _ in 0..8 {
                        let mut draw = || random.vector(d).iter().map(|x| x + shift).collect::<Vec<f32>>();
                        let (q, x) = (draw(), draw());
                        let got = f64::from(distance(&codec, &q, &encode(&codec, &x)));
                        let expected = exact(metric, &q, &x);
                        let bound = bound::<G>(metric, &q, &x, &centre);
                        let what = format!("{:?} {metric} {d} rotate {rotate} centred {centred}", G::default_name());
                        assert!((got - expected).abs() <= bound, "{what}: {got} for {expected}, bound {bound}");
                        assert!(metric == Metric::InnerProduct || got >= 0.0, "{what}");
                    }
                }
            }
        }
    }
}

trait Name: Grid {
    fn default_name() -> &'static str {
        std::any::type_name::<Self>()
    }
}

impl<G: Grid> Name for G {}

/// Distances to a row are those to what it decodes to, and a row's distance from itself is nothing.
fn rows_agree_with_what_they_decode_to<G: Grid>() {
    let mut random = Random(2);
    for d in [7usize, 64, 129] {
        for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
            let codec = QuantizedCodec::<G>::new(d, metric, Some(9));
            for _ in 0..20 {
                let (q, x) = (random.vector(d), random.vector(d));
                let row = encode(&codec, &x);
                let mut decoded = vec![0.0; d];
                codec.decode(&row, &mut decoded);
                let scale = dot(&q, &q).sqrt() * dot(&decoded, &decoded).sqrt();
                let query_step = scale * 2.0 / f64::from(G::QUERY_MAX);
                let inner = match metric {
                    Metric::L2 => (dot(&q, &q) + dot(&x, &x) - f64::from(distance(&codec, &q, &row))) / 2.0,
                    Metric::InnerProduct => -f64::from(distance(&codec, &q, &row)),
                    Metric::Cosine => (1.0 - f64::from(distance(&codec, &q, &row))) * dot(&q, &q).sqrt(),
                };
                let expected = dot(&q, &decoded);
                let clamped = metric != Metric::InnerProduct && (inner - expected).abs() > query_step;
                assert!(
                    (inner - expected).abs() <= query_step || clamped && d == 7,
                    "{metric} {d}: {inner} {expected}"
                );
                let mut query = QuantizedQuery::default();
                codec.query_from_row(Kernels::best(), &row, 1.0, &mut query);
                let itself = f64::from(codec.distance(Kernels::best(), &query, &row, 1.0));
                match metric {
                    Metric::L2 => assert!((0.0..1e-4 * dot(&x, &x)).contains(&itself), "{d}: {itself}"),
                    Metric::Cosine => assert!((0.0..1e-4).contains(&itself), "{d}: {itself}"),
                    // No row tells its norm here: the estimate is as good as cos²θ is usual.
                    Metric::InnerProduct => {
                        let tolerance = 0.1 + 1.5 / (d as f64).sqrt();
                        assert!((itself / -dot(&x, &x) - 1.0).abs() < tolerance, "{d}: {itself}");
                    }
                }
            }
        }
    }
}

fn all_levels_are_used_and_ends_are_kept<G: Grid>() {
    let mut random = Random(3);
    let d = 16;
    let codec = QuantizedCodec::<G>::new(d, Metric::L2, None);
    let mut used = vec![0usize; G::LEVELS as usize];
    for _ in 0..10_000 {
        let x: Vec<f32> = (0..d).map(|_| (random.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect();
        let row = encode(&codec, &x);
        for i in 0..d {
            used[G::unpack(d, &row, i) as usize] += 1;
        }
        let mut decoded = vec![0.0; d];
        codec.decode(&row, &mut decoded);
        if G::LEVELS > 2 {
            let largest = largest_magnitude(&x);
            let step = 2.0 * 1.05 * largest / (G::LEVELS - 1) as f32;
            let inner = x.iter().zip(&decoded).filter(|(x, _)| x.abs() < 0.45 * largest);
            // Half a step, and half a step more where clipping the ends paid and all is scaled up in return.
            assert!(inner.into_iter().all(|(x, y)| (x - y).abs() <= step), "{x:?} {decoded:?}");
        }
    }
    assert!(used.iter().all(|&n| n > 0), "{used:?}");
}

fn unused_bits_are_zero_and_codes_depend_on_the_vector_alone<G: Grid>() {
    let mut random = Random(4);
    for d in [1usize, 3, 5, 7, 9, 15, 33, 127, 385] {
        let codec = QuantizedCodec::<G>::new(d, Metric::InnerProduct, Some(1));
        let (a, b) = (random.vector(d), random.vector(d));
        let mut work = Vec::new();
        let mut rows = [vec![0u8; codec.stride()], vec![0xFF; codec.stride()]];
        codec.encode(&b, &mut vec![0; codec.stride()], &mut work).unwrap();
        for row in &mut rows {
            codec.encode(&a, row, &mut work).unwrap();
            codec.validate(row, 1.0).unwrap();
        }
        assert_eq!(rows[0], rows[1], "{d}");
    }
}

fn constants_and_extremes_stay_finite<G: Grid>() {
    let largest = f32::MAX.sqrt() / 8.0;
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        for d in [1usize, 2, 16, 100] {
            for c in [1e-40f32, 1e-20, 0.1, -3.0, 1e10, largest * 0.99 / (d as f32).sqrt()] {
                for rotate in [None, Some(2)] {
                    let codec = QuantizedCodec::<G>::new(d, metric, rotate);
                    let x = vec![c; d];
                    // A cosine needs 1/norm to be a number.
                    if codec.check(&x).is_err() {
                        assert!(metric == Metric::Cosine && c.abs() < 1e-38, "{metric} {d} {c:e}");
                        continue;
                    }
                    let row = encode(&codec, &x);
                    let got = f64::from(distance(&codec, &x, &row));
                    let minus: Vec<f32> = x.iter().map(|x| -x).collect();
                    let far = f64::from(distance(&codec, &minus, &row));
                    assert!(got.is_finite() && far.is_finite() && got <= far, "{metric} {d} {c:e}: {got} {far}");
                    let squared = dot(&x, &x);
                    let tolerance = 0.1 * squared + 1e-30;
                    match metric {
                        Metric::L2 => assert!(got <= tolerance, "{d} {c:e}: {got}"),
                        Metric::InnerProduct => assert!((got + squared).abs() <= tolerance, "{d} {c:e}: {got}"),
                        Metric::Cosine => assert!(got <= 0.1, "{d} {c:e}: {got}"),
                    }
                }
            }
        }
    }
    // A row that is its centre has nothing left to encode.
    for metric in [Metric::L2, Metric::InnerProduct] {
        let x = vec![1.5f32; 10];
        let codec = QuantizedCodec::<G>::new(10, metric, Some(3)).centred(x.clone());
        let row = encode(&codec, &x);
        let mut decoded = vec![0.0; 10];
        codec.decode(&row, &mut decoded);
        assert_eq!(decoded, x);
        assert_eq!(f64::from(distance(&codec, &x, &row)), exact(metric, &x, &x));
    }
}

macro_rules! stamp {
    ($($module:ident: $grid:ident),*) => {$(
        mod $module {
            #[test]
            fn estimates_are_as_near_as_documented() {
                super::estimates_are_as_near_as_documented::<super::$grid>();
            }

            #[test]
            fn rows_agree_with_what_they_decode_to() {
                super::rows_agree_with_what_they_decode_to::<super::$grid>();
            }

            #[test]
            fn all_levels_are_used_and_ends_are_kept() {
                super::all_levels_are_used_and_ends_are_kept::<super::$grid>();
            }

            #[test]
            fn unused_bits_are_zero_and_codes_depend_on_the_vector_alone() {
                super::unused_bits_are_zero_and_codes_depend_on_the_vector_alone::<super::$grid>();
            }

            #[test]
            fn constants_and_extremes_stay_finite() {
                super::constants_and_extremes_stay_finite::<super::$grid>();
            }
        }
    )*};
}

stamp!(of_8_bits: Int8, of_4_bits: Int4, of_1_bit: Bits1);

#[test]
fn the_sum_of_a_row_taken_as_a_query_is_that_of_its_components() {
    fn check<G: Grid>(random: &mut Random) {
        for dimension in [1, 2, 7, 8, 9, 31, 32, 33, 129, 768, 4097, 65_536] {
            let extremes = [0, G::LEVELS - 1].map(|code| vec![code; dimension]);
            let any = (0..dimension).map(|_| (random.next() % G::LEVELS as u64) as i32).collect();
            for codes in extremes.into_iter().chain([any]) {
                let mut bytes = vec![0; G::code_bytes(dimension)];
                G::pack(dimension, |i| codes[i], &mut bytes);
                let mut values = Vec::new();
                G::doubled(dimension, &bytes, &mut values);
                let sum: i64 = values.iter().map(|&value| i64::from(G::number(value))).sum();
                assert_eq!(G::sum_of_doubled(dimension, &bytes), sum, "{dimension}");
            }
        }
    }
    let mut random = Random(1);
    check::<Int8>(&mut random);
    check::<Int4>(&mut random);
    check::<Bits1>(&mut random);
}
