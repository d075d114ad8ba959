//! Kernel parity under the native test harness; the suite itself is shared with the one for WebAssembly.

#[path = "suites/kernel_parity.rs"]
mod kernel_parity;

use std::panic::{AssertUnwindSafe, catch_unwind};
use twindex::kernel::{Bits1Query, INT8_QUERY_MAX, Int4Query, Int8Query};
use twindex::{Kernels, Level, MAX_DIMENSION};

kernel_parity::stamp!(test);

fn available() -> impl Iterator<Item = &'static Kernels> {
    Level::available().into_iter().filter_map(Kernels::for_level)
}

#[track_caller]
fn assert_panics<T>(call: impl FnOnce() -> T, expected: &str) {
    let Err(payload) = catch_unwind(AssertUnwindSafe(call)) else { panic!("went through instead of: {expected}") };
    let message = payload.downcast_ref::<String>().expect("a formatted message");
    assert!(message.contains(expected), "{message} instead of: {expected}");
}

/// A call's result does not matter.
fn ran<T>(_: T) {}

/// Every kernel of every level refuses a row that is a byte too long or too short, wherever it stands among four.
#[test]
fn rows_of_the_wrong_length_are_refused() {
    for kernels in available() {
        for n in [1, 3, 16, 100] {
            let floats = vec![1.0; n];
            let (mut int8, mut int4, mut bits1) = <(Int8Query, Int4Query, Bits1Query)>::default();
            kernels.arrange_int8(&vec![1; n], &mut int8);
            kernels.arrange_int4(&vec![1; n], &mut int4);
            kernels.arrange_bits1(&vec![1; n], &mut bits1);
            type Kernel<'a> = (usize, &'a dyn Fn(&[u8]), &'a dyn Fn([&[u8]; 4]));
            let table: [Kernel<'_>; 7] =
                [
                    (4 * n, &|row| ran(kernels.dot_f32(&floats, row)), &|rows| ran(kernels.dot_f32_x4(&floats, rows))),
                    (4 * n, &|row| ran(kernels.l2_f32(&floats, row)), &|rows| ran(kernels.l2_f32_x4(&floats, rows))),
                    (2 * n, &|row| ran(kernels.dot_f16(&floats, row)), &|rows| ran(kernels.dot_f16_x4(&floats, rows))),
                    (2 * n, &|row| ran(kernels.l2_f16(&floats, row)), &|rows| ran(kernels.l2_f16_x4(&floats, rows))),
                    (n, &|row| ran(kernels.dot_int8(&int8, row)), &|rows| ran(kernels.dot_int8_x4(&int8, rows))),
                    (n.div_ceil(2), &|row| ran(kernels.dot_int4(&int4, row)), &|rows| {
                        ran(kernels.dot_int4_x4(&int4, rows))
                    }),
                    (n.div_ceil(8), &|row| ran(kernels.dot_bits1(&bits1, row)), &|rows| {
                        ran(kernels.dot_bits1_x4(&bits1, rows))
                    }),
                ];
            for (len, one, four) in table {
                let right = vec![0; len];
                one(&right);
                four([&right; 4]);
                for wrong in [len - 1, len + 1] {
                    let row = vec![0; wrong];
                    let expected = format!("of {n} components needs rows of {len} bytes, this one has {wrong}");
                    assert_panics(|| one(&row), &expected);
                    for place in 0..4 {
                        let mut rows = [&right[..]; 4];
                        rows[place] = &row;
                        assert_panics(|| four(rows), &expected);
                    }
                }
            }
        }
    }
}

/// A query is for the kernels that arranged it, and for no others.
#[test]
fn queries_of_another_level_are_refused() {
    for kernels in available() {
        let level = kernels.level();
        let others = available().map(Some).filter(|other| other.is_none_or(|other| other.level() != level));
        for other in others.chain([None]) {
            let (mut int8, mut int4, mut bits1) = <(Int8Query, Int4Query, Bits1Query)>::default();
            let expected = match other {
                Some(other) => {
                    other.arrange_int8(&[1], &mut int8);
                    other.arrange_int4(&[1], &mut int4);
                    other.arrange_bits1(&[1], &mut bits1);
                    format!("a query arranged for {} was given to the kernels of {level}", other.level())
                }
                None => format!("a query that is not arranged yet was given to the kernels of {level}"),
            };
            let row: &[u8] = &[1];
            assert_panics(|| kernels.dot_int8(&int8, row), &expected);
            assert_panics(|| kernels.dot_int8_x4(&int8, [row; 4]), &expected);
            assert_panics(|| kernels.dot_int4(&int4, row), &expected);
            assert_panics(|| kernels.dot_int4_x4(&int4, [row; 4]), &expected);
            assert_panics(|| kernels.dot_bits1(&bits1, row), &expected);
            assert_panics(|| kernels.dot_bits1_x4(&bits1, [row; 4]), &expected);
        }
    }
}

/// Components that could overflow, and more of them than a vector may have.
#[test]
fn queries_beyond_the_limits_are_refused() {
    for kernels in available() {
        let (mut int8, mut int4, mut bits1) = <(Int8Query, Int4Query, Bits1Query)>::default();
        for value in [INT8_QUERY_MAX + 1, -INT8_QUERY_MAX - 1, i16::MIN, i16::MAX] {
            assert_panics(|| kernels.arrange_int8(&[0, value, 0], &mut int8), "beyond ±4095");
        }
        let n = MAX_DIMENSION + 1;
        let too_many = format!("{n} values are more than {MAX_DIMENSION}");
        assert_panics(|| kernels.arrange_int8(&vec![0; n], &mut int8), &too_many);
        assert_panics(|| kernels.arrange_int4(&vec![0; n], &mut int4), &too_many);
        assert_panics(|| kernels.arrange_bits1(&vec![0; n], &mut bits1), &too_many);
    }
}
