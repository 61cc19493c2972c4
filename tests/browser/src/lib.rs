//! A browser that shows the service's page, and what a test asks of it. Drives Debian's `chromium` through its `chromedriver`.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// Enough for a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The text of a table's rows.
const ROWS: &str = "(id => [...document.querySelectorAll(`#${id} tbody tr`)].map(row => [...row.cells].map(cell => cell.textContent)))";

/// A browser that shows the page.
#[derive(Debug)]
pub struct Browser {
    runtime: tokio::runtime::Runtime,
    client: Client,
    driver: Child,
    /// Of the driver's session.
    session: String,
    host: String,
}

impl Browser {
    /// Opens the page of a service in a window of this size.
    pub fn open(service: SocketAddr, (width, height): (u32, u32)) -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver, of Debian's chromium-driver");
        let mut lines = BufReader::new(driver.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| {
            Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        let driver_url = format!("http://127.0.0.1:{}", port.expect("a port"));
        let args = [
            // As root, without a screen, and without calls home.
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            &format!("--window-size={width},{height}"),
        ];
        let capabilities = json!({
            "goog:chromeOptions": {"args": args},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": PATIENCE.as_secs() * 1000, "pageLoad": PATIENCE.as_secs() * 1000},
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (client, session) = runtime.block_on(async {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            let client = builder.capabilities(capabilities.as_object().unwrap().clone());
            let client = client.connect(&driver_url).await.unwrap();
            let session = client.session_id().await.unwrap().unwrap();
            (client, format!("{driver_url}/session/{session}"))
        });
        let host = service.to_string();
        let browser = Self { runtime, client, driver, session, host };
        browser.runtime.block_on(browser.client.goto(&format!("http://{}/", browser.host))).unwrap();
        // Gone after a reload.
        browser.run("window.isTheFirst = true");
        browser
    }

    /// Runs statements.
    pub fn run(&self, script: &str) -> Value {
        self.runtime
            .block_on(self.client.execute(script, Vec::new()))
            .unwrap_or_else(|e| panic!("{script}: {e}"))
    }

    /// The value of an expression.
    pub fn value(&self, expression: &str) -> Value {
        self.run(&format!("const rows = {ROWS}; return ({expression});"))
    }

    /// The text of a table's rows.
    pub fn rows(&self, table: &str) -> Vec<Vec<String>> {
        serde_json::from_value(self.value(&format!("rows('{table}')"))).unwrap()
    }

    /// Waits until the page has changed so that an expression is true.
    pub fn until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0], rows = {ROWS}, isSo = () => ({expression});
             if (isSo()) return done();
             const watch = new MutationObserver(() => {{ if (isSo()) {{ watch.disconnect(); done(); }} }});
             watch.observe(document, {{ subtree: true, childList: true, characterData: true, attributes: true }});"
        );
        if let Err(error) = self.runtime.block_on(self.client.execute_async(&script, Vec::new())) {
            panic!("{expression}: {error} on a page that says\n{}", self.value("document.body.innerText"));
        }
    }

    /// Types into a field.
    pub fn write(&self, field: &str, text: &str) {
        self.runtime.block_on(async {
            let field = self.client.find(Locator::Css(field)).await.unwrap();
            field.clear().await.unwrap();
            field.send_keys(text).await.unwrap();
        });
    }

    /// Clicks, as a mouse does.
    pub fn click(&self, button: &str) {
        let click = async { self.client.find(Locator::Css(button)).await.unwrap().click().await };
        self.runtime.block_on(click).unwrap();
    }

    /// Fills the form in as a person does, and waits for the answer.
    pub fn ask(&self, tokens: &str, lora: &str) {
        self.write("[name=tokens]", tokens);
        self.write("[name=lora]", lora);
        self.click("#ask button");
        self.until("document.getElementById('told').textContent !== 'Asking …'");
    }

    /// What the window shows, as PNG.
    pub fn picture(&self) -> Vec<u8> {
        self.runtime.block_on(self.client.screenshot()).unwrap()
    }

    /// What the form has said to that.
    pub fn told(&self) -> String {
        self.value("document.getElementById('told').textContent").as_str().unwrap().to_owned()
    }

    /// What the driver has noted since it was asked last.
    fn log(&self, kind: &str) -> Vec<Value> {
        let mut answer =
            ureq::post(format!("{}/se/log", self.session)).send_json(json!({"type": kind})).unwrap();
        answer.body_mut().read_json::<Value>().unwrap()["value"].as_array().unwrap().clone()
    }

    /// Nothing was asked of anybody else, nothing went wrong, and nothing was loaded anew.
    pub fn check_quiet(&self) {
        assert_eq!(self.log("browser"), Vec::<Value>::new());
        let mut asked = 0;
        for entry in self.log("performance") {
            let message: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let message = &message["message"];
            if message["method"] == "Network.requestWillBeSent" {
                let url = message["params"]["request"]["url"].as_str().unwrap();
                assert!(url.starts_with(&format!("http://{}/", self.host)) || url == "data:,", "{url}");
                asked += 1;
            }
        }
        assert!(asked >= 6, "page, style, script and a look at least, not {asked}");
        assert_eq!(self.value("window.isTheFirst"), true);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser; the driver would leave it behind.
        let _ = ureq::delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
