//! The commands that listen to running engines: serve, capture, doctor.

mod args;
mod ending;
mod logger;
mod settings;
mod serve;
#[cfg(feature = "server")]
mod file;
#[cfg(feature = "server")]
mod limits;
#[cfg(feature = "server")]
mod listen;
mod record;
mod doctor;

pub(crate) use args::{CaptureArgs, DoctorArgs, ServeArgs};
pub(crate) use doctor::run as doctor;
#[cfg(feature = "server")]
pub(crate) use file::FileError;
pub(crate) use record::run as capture;
pub(crate) use serve::run as serve;
