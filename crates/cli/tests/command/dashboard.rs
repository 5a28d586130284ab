//! The dashboard in a real browser: values move under load, nothing is complained about, in both themes, on a screen and
//! on a phone. `TIDEWIRE_PICTURES=DIR` keeps what it looks like.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::common::browser::Browser;
use crate::common::{PATIENCE, Running, addr};

/// Clients that keep some services busy until it is over.
fn load(lines: &[String], over: &Arc<AtomicBool>) -> Vec<std::thread::JoinHandle<()>> {
    let at = |service: &str| {
        let named = format!("service={service} ");
        addr(lines.iter().find(|line| line.contains(&named)).unwrap())
    };
    let clients: [(SocketAddr, &'static [u8], usize); 3] = [
        (at("echo"), b"hello", 5),
        (at("kv"), b"SET k v\r\nGET k\r\nGET none\r\n", 5 + 7 + 5),
        (at("http"), b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", 1),
    ];
    let busy = clients.map(|(to, question, answer)| {
        let over = over.clone();
        std::thread::spawn(move || {
            while !over.load(SeqCst) {
                let mut client = TcpStream::connect(to).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                for _ in 0..20 {
                    client.write_all(question).unwrap();
                    client.read_exact(&mut vec![0; answer]).unwrap();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
        })
    });
    busy.into()
}

/// The text of all tiles; a service's row of the table.
const TILES: &str = "document.getElementById('tiles').innerText";
/// The page fits its screen: tables scroll within themselves.
const FITS: &str = "document.documentElement.scrollWidth <= window.innerWidth";

#[test]
fn it_is_drawn_and_moves_in_a_browser() {
    let Some(mut browser) = Browser::start() else {
        println!("skipped: there is no chromium (Debian: chromium)");
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let mut server = Running::start(&[
        "serve",
        "echo",
        "kv/resp",
        "http",
        "ingest",
        "--durability",
        "sync",
        "--segment",
        "8MiB",
        "--data",
        data.path().to_str().unwrap(),
        "--listen",
        "echo=0",
        "--listen",
        "kv/resp=0",
        "--listen",
        "http=0",
        "--listen",
        "ingest=0",
        "--admin",
        "0",
    ]);
    let lines: Vec<String> = (0..5).map(|_| server.line()).collect();
    let url = format!("http://{}/", addr(&lines[4]));
    let pictures = std::env::var_os("TIDEWIRE_PICTURES").map(PathBuf::from);
    let over = Arc::new(AtomicBool::new(false));
    let busy = load(&lines, &over);
    for theme in ["light", "dark"] {
        for (screen, width, height) in [("screen", 1280, 900), ("phone", 390, 844)] {
            browser.show(&url, width, height, theme);
            browser.until("document.getElementById('state')?.innerText === 'serving'");
            // Charts with something in them, and a row for each service.
            browser.until("document.querySelectorAll('.chart:not([hidden]) canvas').length >= 3");
            for service in ["echo", "kv/resp", "http"] {
                let row =
                    format!("document.getElementById('services').innerText.includes('{service}')");
                browser.until(&row);
            }
            // Each log by itself, in its chart and among its figures.
            for log in ["Log of messages", "Log of keys"] {
                for place in ["charts", "log"] {
                    browser.until(&format!(
                        "document.getElementById('{place}').innerText.includes('{log}')"
                    ));
                }
            }
            let before = browser.value(TILES).as_str().unwrap().to_owned();
            assert!(!before.is_empty());
            browser.until(&format!("{TILES} !== {before:?}"));
            browser.until(FITS);
            let dark = browser.value("matchMedia('(prefers-color-scheme: dark)').matches");
            assert_eq!(dark, theme == "dark");
            let shade = "(([r, g, b]) => (+r + +g + +b) / 3)\
                         (getComputedStyle(document.body).backgroundColor.match(/\\d+/g))";
            let shade = browser.value(shade).as_f64().unwrap();
            assert_eq!(shade < 128.0, theme == "dark", "{theme}: {shade}");
            let trouble = browser.value("document.getElementById('trouble').hidden");
            assert_eq!(trouble, true, "{theme} {screen}");
            let picture = browser.picture();
            assert!(picture.len() > 10_000, "{} bytes", picture.len());
            if let Some(place) = &pictures {
                let name = format!("dashboard-{screen}-{theme}.png");
                std::fs::write(place.join(name), picture).unwrap();
            }
        }
    }
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
    over.store(true, SeqCst);
    for client in busy {
        client.join().unwrap();
    }
    // When the server is gone, it says so instead of showing old figures as new.
    server.signal(rustix::process::Signal::KILL);
    browser.until("!document.getElementById('trouble').hidden");
}
