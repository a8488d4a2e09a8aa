//! An engine that many threads write.

/// Makes engines.
pub struct Engine {
    _private: (),
}
