//! The verdict. (Being written.)
mod reason;
pub use reason::{Reason, Scope};
