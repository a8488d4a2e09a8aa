//! Questions that people asked in public, with the right answers: each file of `cases` has commands and what they print.
//!
//! A file `cases/NAME.md` runs its `console` blocks in the folder `cases/NAME.in`. A line `...` stands for any number of
//! lines, and `[..]` for any text within a line. Set `TRYCMD=dump` to write what the program prints into a folder, and
//! `TRYCMD=overwrite` to replace the expected text. Run one file with `cargo test -p portolan-cli --test cases -- NAME`.

#[test]
fn answers_to_public_questions_are_right() {
    trycmd::TestCases::new().case("tests/cases/*.md");
}
