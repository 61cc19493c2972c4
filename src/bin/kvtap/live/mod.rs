//! The commands that listen to running engines: serve, capture, doctor.

mod args;
mod ending;
mod logger;
mod serve;
mod record;
mod doctor;

pub(crate) use args::{CaptureArgs, DoctorArgs, ServeArgs};
pub(crate) use doctor::run as doctor;
pub(crate) use record::run as capture;
pub(crate) use serve::run as serve;
