//! Torn tails, damage, full disks and power losses.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use terret_log::{AppendError, FileLayer, Payload, RealFiles, Store, StoreError};

use crate::support::*;

/// What a disk does on its nth append.
#[derive(Clone, Copy)]
enum Fault {
    Full,
    Short(usize),
    ShortAndStuck(usize),
}

#[derive(Default)]
struct BadDisk {
    next: Mutex<Option<Fault>>,
    stuck: Mutex<bool>,
}

impl FileLayer for BadDisk {
    fn append(&self, file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        match self.next.lock().unwrap().take() {
            None => RealFiles.append(file, path, bytes),
            Some(Fault::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Short(taken)) => {
                RealFiles.append(file, path, &bytes[..taken.min(bytes.len())])
            }
            Some(Fault::ShortAndStuck(taken)) => {
                *self.stuck.lock().unwrap() = true;
                RealFiles.append(file, path, &bytes[..taken.min(bytes.len())])
            }
        }
    }

    fn truncate(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        if *self.stuck.lock().unwrap() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        RealFiles.truncate(file, path, length)
    }

    fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        RealFiles.sync_data(file, path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        RealFiles.sync_folder(folder)
    }
}

#[test]
fn check_006_a_failed_append_leaves_no_phantom_and_its_seq_is_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(BadDisk::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&disk) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    for fault in [
        Fault::Full,
        Fault::Short(0),
        Fault::Short(1),
        Fault::Short(40),
    ] {
        *disk.next.lock().unwrap() = Some(fault);
        let before = fs::read(store.log_path(&id("s"))).unwrap();
        let error = log.append(user("lost")).unwrap_err();
        assert!(matches!(error, AppendError::Full { .. }), "{error}");
        assert_eq!(fs::read(store.log_path(&id("s"))).unwrap(), before);
        let next = log.next_seq();
        assert_eq!(log.append(user("kept")).unwrap().seq, next);
    }
    drop(log);
    let (log, state) = store.open_writer(&id("s")).unwrap();
    assert_eq!(log.next_seq(), 5);
    assert!(conversation(&state).iter().all(|line| line == "User: kept"));
}

#[test]
fn check_006_a_failed_batch_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(BadDisk::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&disk) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    *disk.next.lock().unwrap() = Some(Fault::Short(300));
    assert!(
        log.append_all(vec![user("a"), user("b"), user("c")])
            .is_err()
    );
    assert_eq!(log.next_seq(), 1);
    log.append(user("d")).unwrap();
    assert_eq!(
        store.read(&id("s"), 0).unwrap().map(Result::unwrap).count(),
        2
    );
}

#[test]
fn a_write_that_cannot_be_taken_back_stops_the_writer_until_it_is_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(BadDisk::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&disk) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    *disk.next.lock().unwrap() = Some(Fault::ShortAndStuck(30));
    assert!(matches!(
        log.append(user("lost")),
        Err(AppendError::Stuck { .. })
    ));
    assert!(matches!(
        log.append(user("lost")),
        Err(AppendError::Stuck { .. })
    ));
    drop(log);
    *disk.stuck.lock().unwrap() = false;
    let (mut log, _) = store.open_writer(&id("s")).unwrap();
    assert_eq!(
        log.append(user("kept")).unwrap().seq,
        2,
        "behind created and log/repaired"
    );
}

#[test]
fn check_017_a_torn_tail_loses_only_the_torn_record() {
    let home = home();
    drop(home.session("s", vec![user("one"), user("two")]));
    let path = home.store.log_path(&id("s"));
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 20]).unwrap();
    assert_eq!(
        home.events("s").len(),
        2,
        "a reader ends before the torn line"
    );
    let report = home.store.verify(&id("s")).unwrap();
    assert!(report.is_sound() && report.torn_bytes > 0);

    let (mut log, state) = home.store.open_writer(&id("s")).unwrap();
    assert_eq!(conversation(&state), ["User: one"]);
    log.append(user("three")).unwrap();
    drop(log);
    let (_, state) = home.store.open_writer(&id("s")).unwrap();
    assert_eq!(conversation(&state), ["User: one", "User: three"]);
    let events = home.events("s");
    let Payload::LogRepaired {
        kept_aside,
        dropped_bytes,
    } = &events[2].payload
    else {
        panic!("{:?}", events[2])
    };
    let kept = fs::read(path.with_file_name(kept_aside)).unwrap();
    assert_eq!(kept.len() as u64, *dropped_bytes);
    assert!(
        whole.windows(kept.len()).any(|window| window == kept),
        "the torn bytes are kept"
    );
    home.store.delete(&id("s")).unwrap();
    assert!(!path.with_file_name(kept_aside).exists());
}

#[test]
fn junk_at_the_end_is_torn_and_junk_in_the_middle_is_damage() {
    for junk in [
        &[0_u8; 512][..],
        b"\n\n\n",
        b"not json\n",
        &[0xff, 0xfe, b'\n', 0, b'\n'],
    ] {
        let home = home();
        drop(home.session("s", vec![user("one")]));
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(home.store.log_path(&id("s")))
            .unwrap();
        file.write_all(junk).unwrap();
        assert_eq!(home.events("s").len(), 2);
        let (mut log, _) = home.store.open_writer(&id("s")).unwrap();
        log.append(user("two")).unwrap();
        assert_eq!(home.events("s").len(), 4);
    }
}

#[test]
fn r042_a_bad_place_in_the_middle_is_named_and_what_follows_is_used() {
    let long = vec![b'x'; 5 * 1024 * 1024];
    for junk in [&[0_u8; 512][..], &[0x80, 0x0a, 0xff], &long] {
        let home = home();
        drop(home.session("s", golden_turn()));
        let path = home.store.log_path(&id("s"));
        let whole = fs::read(&path).unwrap();
        let cut = 1 + whole
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .nth(8)
            .unwrap()
            .0;
        let damaged = [&whole[..cut], junk, b"\n", &whole[cut..]].concat();
        fs::write(&path, &damaged).unwrap();

        let error = home.store.open_writer(&id("s")).unwrap_err();
        assert!(
            matches!(error, StoreError::Broken { seq: 9, .. }),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), damaged, "nothing was cut off");
        let read: Vec<_> = home.store.read(&id("s"), 0).unwrap().collect();
        assert_eq!(read.iter().filter(|event| event.is_err()).count(), 1);
        assert_eq!(read.iter().filter(|event| event.is_ok()).count(), 16);

        let (log, state, lost) = home.store.salvage(&id("s"), id("t")).unwrap();
        assert_eq!(lost, 1);
        assert_eq!(log.next_seq(), 17, "all events, and where they came from");
        assert_eq!(conversation(&state).len(), 4);
        assert!(home.store.verify(&id("t")).unwrap().is_sound());
    }
}

#[test]
fn r044_a_lost_result_is_replaced_in_a_salvaged_session() {
    let home = home();
    drop(home.session("s", golden_turn()));
    let path = home.store.log_path(&id("s"));
    let text = fs::read_to_string(&path).unwrap();
    let without: String = text
        .lines()
        .filter(|line| !line.contains("tool/result"))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&path, without).unwrap();
    assert!(matches!(
        home.store.open_writer(&id("s")),
        Err(StoreError::Broken { seq: 9, .. })
    ));
    let (_, state, _) = home.store.salvage(&id("s"), id("t")).unwrap();
    let lines = conversation(&state);
    assert!(lines[2].starts_with("Tool: #c1 error "), "{lines:?}");
}

#[test]
fn any_changed_byte_is_found() {
    let home = home();
    drop(home.session("s", vec![user("one"), user("two"), user("three")]));
    let path = home.store.log_path(&id("s"));
    let whole = fs::read(&path).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for place in (0..whole.len()).step_by(7) {
        let changed = if whole[place] == b'q' { b'r' } else { b'q' };
        file.write_all_at(&[changed], place as u64).unwrap();
        let report = home.store.verify(&id("s")).unwrap();
        assert!(
            !report.is_sound() || report.torn_bytes > 0,
            "the change at {place} was not found"
        );
        file.write_all_at(&whole[place..=place], place as u64)
            .unwrap();
    }
    assert!(home.store.verify(&id("s")).unwrap().is_sound());
}

/// Forgets what was not synced when the power goes.
#[derive(Default)]
struct PowerLayer {
    synced: Mutex<HashMap<PathBuf, u64>>,
    syncs: AtomicUsize,
    broken: Mutex<bool>,
}

impl PowerLayer {
    fn lose_power(&self, files: &[PathBuf]) {
        let synced = self.synced.lock().unwrap();
        for path in files {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(synced.get(path).copied().unwrap_or(0))
                .unwrap();
        }
    }
}

impl FileLayer for PowerLayer {
    fn append(&self, file: &File, path: &Path, bytes: &[u8]) -> io::Result<usize> {
        RealFiles.append(file, path, bytes)
    }

    fn truncate(&self, file: &File, path: &Path, length: u64) -> io::Result<()> {
        RealFiles.truncate(file, path, length)
    }

    fn sync_data(&self, file: &File, path: &Path) -> io::Result<()> {
        if *self.broken.lock().unwrap() {
            return Err(io::Error::other("the disk is gone"));
        }
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced
            .lock()
            .unwrap()
            .insert(path.to_owned(), file.metadata()?.len());
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_was_synced_outlives_a_power_loss_with_its_blobs() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Arc::new(PowerLayer::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&layer) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    let kept = store.blobs().put(b"kept").unwrap();
    log.append_all(vec![created(), user("kept")]).unwrap();
    log.syncer().sync().await.unwrap();
    log.append(user("lost")).unwrap();
    drop(log);
    let blob_path = store
        .root()
        .join("blobs")
        .join(&kept.as_str()[..2])
        .join(kept.as_str());
    layer.lose_power(&[store.log_path(&id("s")), blob_path]);
    let (_, state) = store.open_writer(&id("s")).unwrap();
    assert_eq!(conversation(&state), ["User: kept"]);
    assert_eq!(store.blobs().get(&kept).unwrap(), b"kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_wait_share_a_sync() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Arc::new(PowerLayer::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&layer) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    let waiters: Vec<_> = (0..64)
        .map(|n| {
            log.append(user(&n.to_string())).unwrap();
            log.syncer()
        })
        .collect();
    let before: Vec<_> = waiters.iter().map(terret_log::Syncer::sync).collect();
    for waiter in before {
        waiter.await.unwrap();
    }
    assert_eq!(
        layer.syncs.load(Ordering::Relaxed),
        1,
        "all of them were covered by the first"
    );
    log.syncer().sync().await.unwrap();
    assert_eq!(layer.syncs.load(Ordering::Relaxed), 1, "nothing is new");
    log.append(user("new")).unwrap();
    log.syncer().sync().await.unwrap();
    assert_eq!(layer.syncs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_cancelled_wait_does_not_block_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), Ticks::new()).unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    let syncer = log.syncer();
    {
        let wait = syncer.sync();
        tokio::pin!(wait);
        // Polled once, so that it has begun, and then dropped.
        let _ = futures_poll_once(wait.as_mut()).await;
    }
    syncer.sync().await.unwrap();
}

async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test]
async fn a_failed_sync_is_told_to_all_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let layer = Arc::new(PowerLayer::default());
    let store = Store::with_layer(
        folder.path(),
        Ticks::new(),
        Arc::clone(&layer) as Arc<dyn FileLayer>,
    )
    .unwrap();
    let mut log = store.create(id("s")).unwrap();
    log.append(created()).unwrap();
    *layer.broken.lock().unwrap() = true;
    assert!(matches!(
        log.syncer().sync().await,
        Err(AppendError::Sync { .. })
    ));
    *layer.broken.lock().unwrap() = false;
    assert!(
        log.syncer().sync().await.is_err(),
        "a later success would be a lie"
    );
    log.append(user("in the file all the same")).unwrap();
}
