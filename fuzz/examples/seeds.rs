//! Writes the seeds: `cargo run --example seeds -- DIRECTORY`, one directory below it for each target.

use std::path::Path;
use std::{fs, io};

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;
    for ((target, name), bytes) in kvtap_fuzz::seeds::all() {
        let directory = Path::new(&directory).join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)?;
    }
    Ok(())
}
