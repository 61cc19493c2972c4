//! What a table must say of where it comes from: date, processor, compiler, versions.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

/// One paragraph of Markdown, with the versions of these packages.
pub(crate) fn line(packages: &[&str]) -> String {
    let packages: Vec<_> = packages.iter().map(|name| format!("{name} {}", locked(name))).collect();
    format!(
        "{}, {}, {}; {}.\n",
        date(),
        processor(),
        output("rustc", &["--version"]).unwrap_or_else(|| "rustc unknown".to_owned()),
        packages.join(", ")
    )
}

/// Version of a package in our lock file.
fn locked(name: &str) -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split("[[package]]").find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
    let version = entry.and_then(|entry| entry.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        line.split(": ").nth(1).map(str::to_owned)
    };
    let model = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let (family, number) = (field("cpu family"), field("model\t"));
    match (family, number) {
        (Some(family), Some(number)) => format!("{model} (family {family}, model {number})"),
        _ => model,
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Today in UTC, by the days-to-civil algorithm of Howard Hinnant.
fn date() -> String {
    let seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year)
}
