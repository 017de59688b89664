#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;

use super::{ReplaceError, Stamp, exchange, replace, write_in_place};

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

fn stamp(path: &Path) -> Option<Stamp> {
    Some(Stamp::of(&fs::File::open(path).expect("open")).expect("a stamp"))
}

#[test]
fn r124_mode_bits_and_attributes_are_carried_over() {
    let folder = folder();
    for (name, mode) in [("script", 0o755), ("secret", 0o600), ("shared", 0o664)] {
        let path = folder.path().join(name);
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("mode");
        let marked =
            rustix::fs::setxattr(&path, "user.note", b"kept", rustix::fs::XattrFlags::empty())
                .is_ok();
        replace(folder.path(), Path::new(name), b"new", stamp(&path)).expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"new");
        assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o7777, mode);
        if marked {
            let mut value = vec![0_u8; 16];
            let length =
                rustix::fs::getxattr(&path, "user.note", value.as_mut_slice()).expect("kept");
            assert_eq!(value.get(..length), Some(&b"kept"[..]));
        }
    }
}

#[test]
fn r124_a_file_with_several_names_is_written_in_place() {
    let folder = folder();
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    fs::write(&one, "a longer old text").expect("written");
    fs::hard_link(&one, &two).expect("linked");
    let inode = fs::metadata(&one).expect("metadata").ino();
    replace(folder.path(), Path::new("one"), b"new", stamp(&one)).expect("replaced");
    assert_eq!(fs::read(&two).expect("read"), b"new");
    assert_eq!(fs::metadata(&one).expect("metadata").ino(), inode);
}

#[test]
fn check_135_the_old_content_is_there_until_the_new_one_is() {
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("written");
    let held = fs::File::open(&path).expect("open");
    replace(folder.path(), Path::new("a"), b"new", stamp(&path)).expect("replaced");
    // The old file was never written to: who has it open still reads it whole.
    assert_eq!(std::io::read_to_string(held).expect("read"), "old");
    assert_eq!(
        fs::read_dir(folder.path()).expect("list").count(),
        1,
        "a temporary file is left"
    );
}

#[test]
fn what_changed_meanwhile_is_not_replaced() {
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("written");
    let before = stamp(&path);
    fs::write(&path, "other").expect("written");
    assert!(matches!(
        replace(folder.path(), Path::new("a"), b"new", before),
        Err(ReplaceError::Changed)
    ));
    assert!(matches!(
        replace(folder.path(), Path::new("a"), b"new", None),
        Err(ReplaceError::Changed)
    ));
    fs::remove_file(&path).expect("removed");
    assert!(matches!(
        replace(folder.path(), Path::new("a"), b"new", before),
        Err(ReplaceError::Changed)
    ));
    assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 0);
}

#[test]
fn a_folder_swapped_for_a_link_leads_nowhere() {
    let (folder, other) = (folder(), folder());
    std::os::unix::fs::symlink(other.path(), folder.path().join("sub")).expect("linked");
    assert!(replace(folder.path(), Path::new("sub/a"), b"new", None).is_err());
    assert_eq!(fs::read_dir(other.path()).expect("list").count(), 0);
}

/// What somebody saved while the new content went to the disk is not replaced.
#[test]
fn a_save_during_the_write_is_kept() {
    let folder = folder();
    let path = folder.path().join("a");
    fs::write(&path, "old").expect("written");
    let before = stamp(&path).expect("a stamp");
    let old = fs::File::open(&path).expect("open");
    fs::write(&path, "saved meanwhile").expect("written");
    let opened = super::open::folder(folder.path(), Path::new(""), false).expect("a folder");
    let done = exchange(&opened, "a".as_ref(), &old, b"new", before);
    assert!(matches!(done, Err(ReplaceError::Changed)), "{done:?}");
    assert_eq!(fs::read(&path).expect("read"), b"saved meanwhile");
    assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
}

/// A file that cannot grow stands for a disk that is full half way.
#[test]
fn a_full_disk_leaves_a_file_that_is_written_in_place_as_it_was() {
    use rustix::fs::{MemfdFlags, SealFlags};
    let old = vec![b'o'; 20_000];
    let memory =
        rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).expect("a file in memory");
    rustix::io::write(&memory, &old).expect("written");
    rustix::fs::fcntl_add_seals(&memory, SealFlags::GROW).expect("sealed");
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("open");
    let reading = fs::File::open(&path).expect("open");
    assert!(write_in_place(file, &reading, &[b'n'; 60_000]).is_err());
    assert_eq!(fs::read(&path).expect("read"), old);
}
