//! A headless browser (Debian's chromium), driven over a pair of pipes by the DevTools protocol: a JSON object each,
//! with a zero byte behind it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::PATIENCE;

/// One page.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    said: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Messages of the browser's console and its exceptions.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts the browser; `None` if none is installed.
    pub fn start() -> Option<Browser> {
        let names = ["chromium", "chromium-browser"];
        let is_there = |name: &&&str| {
            let mut version = Command::new(name);
            version
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            version.status().is_ok_and(|status| status.success())
        };
        let name = names.iter().find(is_there)?;
        let profile = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3 and answers on 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut child = Command::new("sh")
            .args(["-c", script, name])
            .args([
                "--headless=new",
                // User namespaces are not available everywhere, and the browser loads only tested
                // pages.
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = child.stdout.take().unwrap();
        let (tell, said) = channel();
        std::thread::spawn(move || {
            each(answers, |value| tell.send(value).is_ok());
        });
        let mut browser = Browser {
            child,
            commands,
            said,
            next: 0,
            session: None,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}));
        let to = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.ask("Target.attachToTarget", to);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.ask(domain, json!({}));
        }
        Some(browser)
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut command = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands
            .write_all(command.to_string().as_bytes())
            .unwrap();
        self.commands.write_all(b"\0").unwrap();
        loop {
            let said = self
                .said
                .recv_timeout(PATIENCE)
                .expect("the browser answers");
            if said["id"] == id {
                assert!(said.get("error").is_none(), "{method}: {said}");
                return said["result"].clone();
            }
            self.note(&said);
        }
    }

    fn note(&mut self, said: &Value) {
        let params = &said["params"];
        let is_bad = match said["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => matches!(
                params["type"].as_str(),
                Some("error" | "warning" | "assert")
            ),
            "Log.entryAdded" => {
                matches!(params["entry"]["level"].as_str(), Some("error" | "warning"))
            }
            _ => false,
        };
        if is_bad {
            self.complaints.push(params.to_string());
        }
    }

    /// What an expression comes to.
    pub fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let answer = self.ask("Runtime.evaluate", params);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {answer}"
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.value(expression) != Value::Bool(true) {
            assert!(
                begin.elapsed() < PATIENCE,
                "{expression} does not come true"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Shows a page on a screen of this size.
    pub fn show(&mut self, url: &str, width: u32, height: u32, theme: &str) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.ask("Emulation.setDeviceMetricsOverride", screen);
        let theme = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.ask("Emulation.setEmulatedMedia", theme);
        self.ask("Page.navigate", json!({"url": url}));
    }

    /// The whole page, as PNG.
    pub fn picture(&mut self) -> Vec<u8> {
        let params = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", params);
        STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `f` with each object until it is enough.
fn each(answers: ChildStdout, mut f: impl FnMut(Value) -> bool) {
    let mut answers = BufReader::new(answers);
    let mut bytes = Vec::new();
    while matches!(answers.read_until(0, &mut bytes), Ok(n) if n > 0) {
        bytes.pop();
        if let Ok(value) = serde_json::from_slice(&bytes)
            && !f(value)
        {
            return;
        }
        bytes.clear();
    }
}
