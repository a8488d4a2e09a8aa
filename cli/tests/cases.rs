//! Commands and what they print: each file of `cases` has some. The files in `cases` itself answer questions that people
//! asked in public. The folders have further cases by subject.
//!
//! A file `cases/NAME.md` runs its `console` blocks in the folder `cases/NAME.in` if it exists, and in `cli` otherwise. A
//! line `...` stands for any number of lines, and `[..]` for any text within a line. Set `TRYCMD=dump` to write what the
//! program prints into a folder, and `TRYCMD=overwrite` to replace the expected text. Run one file with
//! `cargo test -p portolan-cli --test cases -- NAME`.

#[test]
fn commands_print_what_the_cases_show() {
    trycmd::TestCases::new().case("tests/cases/*.md").case("tests/cases/*/*.md");
}
