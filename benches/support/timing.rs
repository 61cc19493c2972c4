//! How long each case is timed.

use std::time::Duration;

use criterion::Criterion;

pub(crate) fn brief() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}
