//! wrk as a child: prepared bodies in turn, one line of figures at the end.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Options, fill};

/// What one run of wrk found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) per_second: f64,
}

/// wrk, which is installed.
pub(super) struct Wrk;

impl Wrk {
    /// `None` if it is not there.
    pub(super) fn find() -> Option<Self> {
        // It has no option that does nothing; its usage is told with a failure.
        let run = Command::new("wrk").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_ok().then_some(Self)
    }

    pub(super) fn run(&self, options: &Options, address: SocketAddr, script: &Path) -> Run {
        let seconds = if options.quick { 1 } else { options.seconds };
        let output = Command::new("wrk")
            .args(["--threads", "1", "--timeout", "30s", "--connections"])
            .arg(options.connections.to_string())
            .arg(format!("--duration={seconds}s"))
            .arg("--script")
            .arg(script)
            .arg(format!("http://{address}"))
            .output()
            .expect("wrk");
        let text = String::from_utf8(output.stdout).expect("text");
        let line = text.lines().find_map(|line| line.strip_prefix("figures "));
        let figures: Vec<f64> =
            line.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
        let [p50_us, p99_us, requests, duration_us, errors] = figures[..] else {
            panic!("wrk said {text} {}", String::from_utf8_lossy(&output.stderr));
        };
        assert!(requests > 0.0 && errors == 0.0, "wrk said {text}");
        Run { p50_us, p99_us, per_second: requests / duration_us * 1e6 }
    }
}

/// Bodies are files, so that Lua need not hold a second copy as source.
pub(super) fn write_script(size: usize) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("kvtap-perf-service-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut script = String::from(
        // wrk's event loop has room for few descriptors: files that stay open take it from its connections.
        "requests, turn = {}, 0\n\
         function content(name)\n  local file = io.open(name)\n  local text = file:read(\"*a\")\n  file:close()\n  return text\nend\n\
         function init(args)\n",
    );
    for (number, (path, body)) in fill::requests(size).iter().enumerate() {
        let file = directory.join(format!("{size}-{number}.json"));
        std::fs::write(&file, body.to_string()).expect("a file");
        let file = file.display();
        let headers = "{ [\"Content-Type\"] = \"application/json\" }";
        writeln!(
            script,
            "  table.insert(requests, wrk.format(\"POST\", \"{path}\", {headers}, content(\"{file}\")))"
        )
        .expect("memory");
    }
    script.push_str(
        "end\n\
         function request()\n  turn = turn % #requests + 1\n  return requests[turn]\nend\n\
         function done(summary, latency, _)\n  local e = summary.errors\n  \
         io.write(string.format(\"figures %d %d %d %d %d\\n\", latency:percentile(50), latency:percentile(99), \
         summary.requests, summary.duration, e.connect + e.read + e.write + e.status + e.timeout))\nend\n",
    );
    let file = directory.join(format!("{size}.lua"));
    std::fs::write(&file, script).expect("a file");
    file
}
