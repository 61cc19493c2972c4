//! The `kvtap` program.

fn main() {}
