//! Against a model that keeps every byte in memory.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use proptest::prelude::*;

use super::*;

struct Bench {
    place: tempfile::TempDir,
    folder: Folder,
}

impl Bench {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path()).unwrap();
        Self { place, folder }
    }

    fn writer(&self, room: u64) -> SpoolWriter {
        SpoolWriter::new(self.folder.try_clone().unwrap(), room)
    }

    fn on_disk(&self) -> u64 {
        std::fs::read_dir(self.place.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .sum()
    }

    /// Reads all in pieces: what was there, with its place, and how much was missing.
    fn all(&self, most: usize) -> (Vec<(u64, Vec<u8>)>, u64) {
        let (mut pieces, mut missing, mut from) = (Vec::new(), 0, 0);
        loop {
            let found = read(&self.folder, from, most).unwrap();
            missing += found.at - from;
            if found.bytes.is_empty() {
                return (pieces, missing);
            }
            from = found.at + found.bytes.len() as u64;
            pieces.push((found.at, found.bytes));
        }
    }
}

/// Byte `at` of the model's output.
fn byte(at: u64) -> u8 {
    u8::try_from((at * 31 + at / 251) % 251).unwrap()
}

fn output(from: u64, length: usize) -> Vec<u8> {
    (from..).take(length).map(byte).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_kept_is_right_and_what_is_not_is_counted(
        room in 0_u64..4000,
        writes in prop::collection::vec(0_usize..700, 0..30),
        most in 1_usize..900,
        removals in prop::collection::vec((0_usize..30, 0_usize..12), 0..3),
    ) {
        let bench = Bench::new();
        let mut writer = bench.writer(room);
        let mut given = 0_u64;
        for (turn, length) in writes.iter().enumerate() {
            writer.push(&output(given, *length));
            given += *length as u64;
            for (when, which) in &removals {
                let mut names = bench.folder.names().unwrap();
                names.sort();
                if *when == turn && let Some(name) = names.get(*which) {
                    bench.folder.remove(name).unwrap();
                    writer.look();
                }
            }
            prop_assert!(bench.on_disk() <= room);
        }
        prop_assert_eq!(writer.written(), given);
        prop_assert_eq!(writer.held(), bench.on_disk());
        prop_assert_eq!(held(&bench.folder).unwrap(), bench.on_disk());
        let (pieces, missing) = bench.all(most);
        let mut kept = 0;
        for (at, bytes) in &pieces {
            prop_assert!(bytes.len() <= most);
            prop_assert_eq!(bytes, &output(*at, bytes.len()));
            kept += bytes.len() as u64;
        }
        prop_assert_eq!(kept, writer.held());
        prop_assert_eq!(kept + writer.dropped(), given);
        // What is missing after the last byte that is there shows only in the count.
        let reached = pieces.last().map_or(0, |(at, bytes)| at + bytes.len() as u64);
        prop_assert_eq!(kept + missing, reached);
        // Something of the beginning and of the end stays, whatever is written.
        if removals.is_empty() && given > room && room >= 11 {
            prop_assert_eq!(pieces.first().map(|(at, _)| *at), Some(0));
            prop_assert_eq!(reached, given);
            prop_assert!(kept >= room / 4 + (room - room / 4) / SEGMENTS * (SEGMENTS - 1));
        }
    }

    #[test]
    fn any_cut_of_a_text_is_found(text in "[a-zäß漢🎉]{0,12}", cut in 0_usize..40) {
        let bytes = text.as_bytes();
        let head = bytes.get(..cut.min(bytes.len())).unwrap();
        let whole = head.len() - unfinished(head);
        prop_assert!(std::str::from_utf8(head.get(..whole).unwrap()).is_ok());
        prop_assert!(head.len() - whole < 4);
        if text.is_char_boundary(head.len()) {
            prop_assert_eq!(whole, head.len());
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_not_held_back() {
    for bytes in [
        &b"\xff\xff"[..],
        b"\x80\x80\x80\x80",
        b"abc",
        b"",
        b"\xe6\xbc\xa2",
    ] {
        assert_eq!(unfinished(bytes), 0, "{bytes:?}");
    }
    assert_eq!(unfinished(b"a\xf0\x9f\x8e"), 3);
}

#[test]
fn a_spool_that_was_removed_by_hand_is_counted_and_goes_on() {
    let bench = Bench::new();
    let mut writer = bench.writer(8000);
    writer.push(&output(0, 1500));
    for name in bench.folder.names().unwrap() {
        bench.folder.remove(&name).unwrap();
    }
    writer.look();
    assert_eq!((writer.written(), writer.dropped()), (1500, 1500));
    assert!(writer.trouble().unwrap().contains("removed"));
    writer.push(&output(1500, 100));
    assert_eq!((writer.written(), writer.dropped()), (1600, 1500));
    let found = read(&bench.folder, 10, 1000).unwrap();
    assert_eq!((found.at, found.bytes), (1500, output(1500, 100)));
}

#[test]
fn a_folder_that_was_removed_by_hand_costs_the_output_and_nothing_else() {
    let bench = Bench::new();
    let mut writer = bench.writer(8000);
    writer.push(&output(0, 100));
    std::fs::remove_dir_all(bench.place.path()).unwrap();
    assert!(bench.folder.is_removed());
    writer.look();
    writer.push(&output(100, 5000));
    assert_eq!((writer.written(), writer.dropped()), (5100, 5100));
}

#[test]
fn a_file_that_cannot_be_made_is_tried_again_later() {
    let bench = Bench::new();
    let mut writer = bench.writer(8000);
    writer.push(&output(0, 2000));
    // A folder stands where the next file would be.
    std::fs::create_dir(bench.place.path().join(name(2000))).unwrap();
    writer.push(&output(2000, 10));
    assert_eq!((writer.written(), writer.dropped()), (2010, 10));
    assert!(writer.trouble().is_some());
    writer.push(&output(2010, 10));
    std::fs::remove_dir(bench.place.path().join(name(2000))).unwrap();
    assert_eq!((writer.written(), writer.dropped()), (2020, 10));
    let found = read(&bench.folder, 1990, 100).unwrap();
    assert_eq!((found.bytes, found.gap_follows), (output(1990, 10), true));
    let found = read(&bench.folder, 2000, 100).unwrap();
    assert_eq!((found.at, found.bytes), (2010, output(2010, 10)));
}

/// A reader never takes a file that it did not see yet for a gap.
#[test]
fn a_reader_beside_a_writer_misses_only_what_was_dropped() {
    let bench = Bench::new();
    let mut writer = bench.writer(16 << 20);
    let total = 12_u64 << 20;
    std::thread::scope(|scope| {
        let folder = bench.folder.try_clone().unwrap();
        let reader = scope.spawn(move || {
            let (mut from, mut right) = (0, true);
            while from < total {
                let found = read(&folder, from, 100_000).unwrap();
                // Nothing is dropped while it all has room.
                assert_eq!(found.at, from);
                right &= found.bytes == output(from, found.bytes.len());
                from += found.bytes.len() as u64;
            }
            right
        });
        let mut at = 0;
        while at < total {
            let piece = output(at, 10_007.min(usize::try_from(total - at).unwrap()));
            writer.push(&piece);
            at += piece.len() as u64;
        }
        assert!(reader.join().unwrap());
    });
    assert_eq!(writer.dropped(), 0);
    assert_eq!(end(&bench.folder).unwrap(), total);
}

#[test]
fn r137_files_are_private_whatever_they_were() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let made = bench.folder.make_in("job").unwrap();
    made.replace("job.json", b"{}").unwrap();
    let mut writer = SpoolWriter::new(made.try_clone().unwrap(), 100);
    writer.push(b"output");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    let path = bench.place.path().join("job");
    assert_eq!(mode(&path), 0o700);
    for name in made.names().unwrap() {
        assert_eq!(mode(&path.join(&name)), 0o600, "{name}");
    }
}
