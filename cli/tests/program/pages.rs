//! Reads the answers in pages that `--html` writes.

use serde_json::Value;

/// The answer to a question, such as `GET api/v1/replay`, in a page.
pub(crate) fn recorded(page: &str, question: &str) -> Value {
    let text = std::fs::read_to_string(page).expect("a page");
    let (_, recorded) = text.split_once("id=\"recorded\">").expect("answers");
    let (recorded, _) = recorded.split_once("</script>").expect("their end");
    let mut recorded: Value = serde_json::from_str(recorded).expect("JSON");
    recorded["answers"][question].take()
}
