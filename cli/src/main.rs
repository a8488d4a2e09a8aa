//! The program `portolan`.

fn main() -> std::process::ExitCode {
    portolan_cli::main()
}
