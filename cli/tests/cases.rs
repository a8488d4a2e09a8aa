//! Commands and what they print: each file of `cases` has some. Those in `cases` itself are questions that people asked in
//! public, with the right answers; its folders have the other cases by subject.
//!
//! A file `cases/NAME.md` runs its `console` blocks in the folder `cases/NAME.in`, if there is one. A line `...` stands for any number of
//! lines, and `[..]` for any text within a line. Set `TRYCMD=dump` to write what the program prints into a folder, and
//! `TRYCMD=overwrite` to replace the expected text. Run one file with `cargo test -p portolan-cli --test cases -- NAME`.

#[test]
fn commands_print_what_the_cases_show() {
    trycmd::TestCases::new().case("tests/cases/*.md").case("tests/cases/*/*.md");
}
