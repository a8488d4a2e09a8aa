//! Runs the program, and writes its input files.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The exit status and the output of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs the program with these arguments until it exits.
pub(crate) fn portolan(arguments: &[&str]) -> Run {
    let done = Command::new(env!("CARGO_BIN_EXE_portolan"))
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
    Run {
        code: done.status.code().expect("the program exits without a signal"),
        out: text(done.stdout),
        err: text(done.stderr),
    }
}

/// Writes a file into the test's own folder and returns its path.
pub(crate) fn file(test: &str, name: &str, content: &[u8]) -> String {
    // Tests run at once, so the folder of two tests must not have the same name.
    let caller = std::thread::current().name().unwrap_or_default().replace("::", "-");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(caller).join(test);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let path = folder.join(name);
    std::fs::write(&path, content).expect("the file can be written");
    path.to_str().expect("a path in UTF-8").to_owned()
}
