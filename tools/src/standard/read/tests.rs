#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Read;
use crate::call::Output;
use crate::testing::Bench;

async fn read(bench: &Bench, args: Value) -> Result<Output, String> {
    bench
        .run(&Read::new(), args)
        .await
        .map_err(|failure| failure.0)
}

#[tokio::test]
async fn a_window_of_lines_says_what_follows() {
    let bench = Bench::new();
    let text: String = (1..=3_000)
        .map(|number| format!("line {number}\n"))
        .collect();
    bench.put("a.txt", &text);
    let output = read(&bench, json!({"file_path": "a.txt"}))
        .await
        .expect("read");
    assert_eq!(output.text.lines().count(), 2_000);
    assert_eq!(
        output.remarks,
        ["lines 1 to 2000 of 3000; to go on, Read with offset 2001"]
    );
    let output = read(
        &bench,
        json!({"file_path": "a.txt", "offset": 2_999, "limit": 10}),
    )
    .await
    .expect("read");
    assert_eq!(output.render(), "  2999\tline 2999\n  3000\tline 3000");
    let error = read(&bench, json!({"file_path": "a.txt", "offset": 9_999}))
        .await
        .expect_err("past the end");
    assert_eq!(error, "`offset` is 9999, and a.txt has 3000 lines");
}

#[tokio::test]
async fn check_136_a_gigabyte_is_read_by_window() {
    let bench = Bench::new();
    bench.put("big.txt", "first\n".repeat(20_000));
    // Sparse: zeros that take no room, behind the text.
    File::options()
        .write(true)
        .open(bench.path("big.txt"))
        .expect("open")
        .set_len(1 << 30)
        .expect("long");
    let begun = Instant::now();
    let output = read(&bench, json!({"file_path": "big.txt"}))
        .await
        .expect("read");
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(output.text.lines().count(), 2_000);
    let remark = output.remarks.first().expect("a remark");
    assert!(
        remark.starts_with("lines 1 to 2000 of a file of 1073741824 bytes"),
        "{remark}"
    );
    // One line of a gigabyte: no more of it is kept than is shown.
    bench.put("line.txt", "x".repeat(100_000));
    File::options()
        .write(true)
        .open(bench.path("line.txt"))
        .expect("open")
        .set_len(64 << 20)
        .expect("long");
    let output = read(&bench, json!({"file_path": "line.txt"}))
        .await
        .expect("read");
    assert!(output.text.len() < 10_000, "{}", output.text.len());
}

#[tokio::test]
async fn check_136_binary_files_are_named_and_not_shown() {
    let bench = Bench::new();
    bench.put("a.pdf", b"%PDF-1.7\n...");
    bench.put("a.bin", b"\0\x01\x02");
    bench.put("prog", b"\x7FELF\x02\x01\0\0");
    for (name, wanted) in [
        (
            "a.pdf",
            "a.pdf is a PDF document of 12 bytes; it is not shown",
        ),
        (
            "a.bin",
            "a.bin is a binary file of 3 bytes; it is not shown",
        ),
        (
            "prog",
            "prog is a program (ELF) of 8 bytes; it is not shown",
        ),
    ] {
        let output = read(&bench, json!({"file_path": name}))
            .await
            .expect("read");
        assert!(output.text.ends_with(wanted), "{}", output.text);
        assert!(output.images.is_empty());
    }
}

#[tokio::test]
async fn images_come_as_images_by_their_content() {
    let bench = Bench::new();
    for (bytes, mime_type) in [
        (&b"\x89PNG\r\n\x1a\nxx"[..], "image/png"),
        (b"\xFF\xD8\xFF\xE0xx", "image/jpeg"),
        (b"GIF89axx", "image/gif"),
        (b"RIFF\x04\0\0\0WEBPxx", "image/webp"),
    ] {
        // The name does not decide.
        bench.put("picture.txt", bytes);
        let output = read(&bench, json!({"file_path": "picture.txt"}))
            .await
            .expect("read");
        let image = output.images.first().expect("an image");
        assert_eq!(
            (image.mime_type.as_str(), image.bytes.as_slice()),
            (mime_type, bytes)
        );
    }
}

#[tokio::test]
async fn a_folder_suggests_glob_and_a_missing_file_is_said() {
    let bench = Bench::new();
    bench.put("sub/a", "x");
    let error = read(&bench, json!({"file_path": "sub"}))
        .await
        .expect_err("a folder");
    assert!(
        error.contains("is a folder") && error.contains("Glob"),
        "{error}"
    );
    let error = read(&bench, json!({"file_path": "."}))
        .await
        .expect_err("a folder");
    assert!(error.contains("is a folder"), "{error}");
    let error = read(&bench, json!({"file_path": "none"}))
        .await
        .expect_err("missing");
    assert!(error.starts_with("there is no file"), "{error}");
}

#[tokio::test]
async fn what_is_no_file_never_hangs() {
    let bench = Bench::new();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        bench.path("fifo"),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .expect("made");
    let _listener = UnixListener::bind(bench.path("socket")).expect("bound");
    for (name, kind) in [("fifo", "FIFO"), ("socket", "socket")] {
        let reading = read(&bench, json!({"file_path": name}));
        let error = tokio::time::timeout(Duration::from_secs(5), reading)
            .await
            .expect("it hangs")
            .expect_err("refused");
        assert!(error.contains(&format!("is a {kind}")), "{error}");
    }
}
