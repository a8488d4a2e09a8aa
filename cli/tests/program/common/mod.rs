//! Runs the program of the package, and writes its input files.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The exit status and the output of a run.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program of the package.
const PROGRAM: &str = match option_env!("CARGO_BIN_EXE_portolan") {
    Some(portolan) => portolan,
    None => match option_env!("CARGO_BIN_EXE_portolan-bench") {
        Some(bench) => bench,
        None => panic!("tests of a package with a program"),
    },
};

/// Runs the program with these arguments until it exits.
pub(crate) fn portolan(arguments: &[&str]) -> Run {
    portolan_with(arguments, &[])
}

/// Like [`portolan`], with these environment variables.
pub(crate) fn portolan_with(arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let done = Command::new(PROGRAM)
        .args(arguments)
        .envs(variables.iter().copied())
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

std::thread_local! {
    /// The number of the test that runs on this thread.
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

/// Writes a file into the test's own folder and returns its path. Tests run at once, so two tests never share a folder,
/// even if they use the same name.
pub(crate) fn file(test: &str, name: &str, content: &[u8]) -> String {
    let number = NUMBER.with(usize::to_string);
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(number).join(test);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let path = folder.join(name);
    std::fs::write(&path, content).expect("the file can be written");
    path.to_str().expect("a path in UTF-8").to_owned()
}
