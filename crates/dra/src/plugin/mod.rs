//! x
/// x
#[derive(Debug)]
pub struct DynamicResources;
