//! Kernel parity under the native test harness; the suite itself is shared with the one for WebAssembly.

#[path = "suites/kernel_parity.rs"]
mod suite;

macro_rules! stamp {
    ($($test:ident),* $(,)?) => {
        $(#[test] fn $test() { suite::$test(); })*
    };
}

stamp!(
    levels_are_reported,
    scalar_keeps_to_the_definition,
    levels_give_the_same_bits,
    levels_give_the_same_bits_for_extreme_values,
    four_rows_give_the_bits_of_one,
    bytes_around_a_row_do_not_matter,
    error_is_within_the_bound,
    every_component_counts,
);
