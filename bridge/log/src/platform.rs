//! What differs by operating system: who a file is, how private files are made, and
//! which filesystems keep their word about locks.

#![expect(
    clippy::disallowed_methods,
    reason = "folders and files of the log, and the table of mounts"
)]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// What tells one file from another at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
}

impl FileIdentity {
    #[cfg(unix)]
    pub(crate) fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn of(_metadata: &Metadata) -> Self {
        Self {
            device: 0,
            inode: 0,
        }
    }
}

/// Options that make a file readable by its owner alone.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Makes a folder and its missing parents, open to its owner alone.
pub(crate) fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Makes the names in a folder outlive a power loss.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        File::open(path)?.sync_all()
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        Ok(())
    }
}

/// The name of the network filesystem that `path` lies on, if it does. Asks the
/// nearest ancestor that exists, so that nothing has to be made first.
#[cfg(target_os = "linux")]
pub(crate) fn network_filesystem(path: &Path) -> io::Result<Option<String>> {
    let absolute = std::path::absolute(path)?;
    for ancestor in absolute.ancestors() {
        match rustix::fs::statfs(ancestor) {
            Ok(found) => {
                // 32 bits, in a word whose width and sign differ by machine.
                let magic = (i128::from(found.f_type) & i128::from(u32::MAX)) as u32;
                return Ok(network_name(magic)
                    .map(str::to_owned)
                    .or_else(|| fuse_name(magic, ancestor)));
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => {}
            Err(other) => return Err(other.into()),
        }
    }
    Ok(None)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn network_filesystem(_path: &Path) -> io::Result<Option<String>> {
    Ok(None)
}

/// Magic numbers of `statfs(2)` whose locks or syncs do not reach other machines.
#[cfg(target_os = "linux")]
fn network_name(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "nfs",
        0x0000_517b => "smb",
        0xff53_4d42 => "cifs",
        0xfe53_4d42 => "smb2",
        0x5346_414f | 0x6b41_4653 => "afs",
        0x00c3_6400 => "ceph",
        0x7375_7245 => "coda",
        0x0bd0_0bd0 => "lustre",
        0x4750_4653 => "gpfs",
        0x0000_564c => "ncp",
        _ => return None,
    })
}

/// FUSE says nothing of what is behind it, so the mount table is asked: only the
/// few that are known to be remote are refused.
#[cfg(target_os = "linux")]
fn fuse_name(magic: u32, path: &Path) -> Option<String> {
    const FUSE: u32 = 0x6573_5546;
    const REMOTE: [&str; 6] = [
        "fuse.sshfs",
        "fuse.s3fs",
        "fuse.rclone",
        "fuse.davfs",
        "fuse.glusterfs",
        "fuse.gcsfuse",
    ];
    if magic != FUSE {
        return None;
    }
    let table = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let real = path.canonicalize().ok()?;
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_, folder, kind) = (fields.next()?, fields.next()?, fields.next()?);
            real.starts_with(folder).then_some((folder.len(), kind))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
        .filter(|kind| REMOTE.contains(kind))
        .map(str::to_owned)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::network_name;

    #[test]
    fn network_filesystems_are_known_by_their_magic() {
        assert_eq!(network_name(0x6969), Some("nfs"));
        assert_eq!(network_name(0xff53_4d42), Some("cifs"));
        assert_eq!(network_name(0xef53), None, "ext4 is local");
        assert_eq!(network_name(0x9123_683e), None, "btrfs is local");
        assert_eq!(network_name(0x0102_1994), None, "tmpfs is local");
    }
}
