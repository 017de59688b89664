//! The provider `bwrap`: bubblewrap gives a file system of its own, with namespaces for
//! processes, names and the network, and our helper inside it adds Landlock and seccomp.
//!
//! What is not named is not there. The program's own root is empty memory, then come the
//! system and the toolchains read-only, a read-only home folder with the few settings that
//! tools need and room for what they write by themselves, private `/tmp` and `/run`, the roots, and over them whatever is protected
//! or kept back. Bubblewrap is not told to die with its parent: what a command leaves
//! running is to be seen and named when its leader ends, and the supervisor, which has
//! the whole tree in charge, is what ends it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::world::sandbox::ground::{Ground, outermost};
use crate::world::sandbox::guarded::guarded;
use crate::world::sandbox::guess::SeenRoots;
use crate::world::sandbox::helper_file::HelperFile;
use crate::world::sandbox::order::{HELPER, Order, Sockets};
use crate::world::sandbox::passing::PASSING;
use crate::world::sandbox::{
    Denial, Network, Reach, Sandbox, SandboxRefusal, SandboxRequest, Wrapped,
};

/// Where our binary is inside, under the name that makes it the helper.
const INSIDE: &str = "/run/terret";

/// What of bubblewrap works here; containers forbid some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// A process list of its own. Without it the outer one is shown, and Landlock keeps
    /// what is behind its entries closed.
    pub private_proc: bool,
    /// A network namespace. Without it seccomp closes the network alone.
    pub private_network: bool,
}

impl Shape {
    /// From the strongest on, as they are tried.
    pub const LADDER: [Self; 4] = [
        Self::of(true, true),
        Self::of(false, true),
        Self::of(true, false),
        Self::of(false, false),
    ];

    const fn of(private_proc: bool, private_network: bool) -> Self {
        Self {
            private_proc,
            private_network,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct BwrapSandbox {
    bwrap: PathBuf,
    shape: Shape,
    ground: Ground,
    helper: HelperFile,
    is_root: bool,
    seen: SeenRoots,
}

impl BwrapSandbox {
    /// `bwrap` is bubblewrap's program, `copies` a private folder of ours.
    pub fn new(bwrap: PathBuf, shape: Shape, ground: Ground, copies: PathBuf) -> Self {
        Self {
            bwrap,
            shape,
            ground,
            helper: HelperFile::new(copies),
            is_root: rustix::process::geteuid().is_root(),
            seen: SeenRoots::default(),
        }
    }

    /// What of bubblewrap is used.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

impl Sandbox for BwrapSandbox {
    fn name(&self) -> &'static str {
        "bwrap"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        self.seen.note(&request.reach.roots);
        let helper = self.helper.path().map_err(SandboxRefusal)?;
        let view = View::of(&self.ground, &request.reach);
        let mut mounts = Mounts::default();
        view.mount(self.shape, &helper, &mut mounts);
        let network = request.reach.network;
        let mut argv: Vec<OsString> = vec![self.bwrap.clone().into()];
        let mut flags = vec!["--unshare-pid", "--unshare-ipc", "--unshare-uts"];
        if self.shape.private_network && network == Network::Closed {
            flags.push("--unshare-net");
        }
        if self.is_root {
            // Root works on files of other owners, as outside; it loses all else.
            for capability in ["CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN"] {
                flags.extend(["--cap-add", capability]);
            }
        }
        argv.extend(flags.into_iter().map(OsString::from));
        argv.extend(mounts.0);
        argv.push("--chdir".into());
        argv.push(view.folder(&request.cwd).into());
        argv.push("--".into());
        let mut order = Order {
            read: vec!["/".into()],
            write: view.writable_inside(),
            devices: vec!["/dev".into()],
            sockets: match network {
                Network::Open => Sockets::Open,
                Network::Closed if self.shape.private_network => Sockets::Private,
                Network::Closed => Sockets::Closed,
            },
            required: false,
            argv: request.argv,
        }
        .to_argv();
        if let Some(name) = order.first_mut() {
            *name = Path::new(INSIDE).join(HELPER).into();
        }
        argv.extend(order);
        Ok(Wrapped::unchanged(argv))
    }

    fn isolated(&self) -> bool {
        true
    }

    fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        self.seen.guess(text, network)
    }
}

/// What one program sees.
struct View {
    home: Option<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    readable: Vec<PathBuf>,
    /// Roots, and what config and an open network add; outermost.
    writable: Vec<PathBuf>,
    pinned: Vec<PathBuf>,
    frozen: Vec<PathBuf>,
    absent: Vec<PathBuf>,
    /// Below any of the above, and not to be seen.
    secrets: Vec<PathBuf>,
    temporary: Option<PathBuf>,
    first_root: PathBuf,
}

impl View {
    fn of(ground: &Ground, reach: &Reach) -> Self {
        let guarded = guarded(&reach.roots);
        let mut writable = reach.roots.clone();
        writable.extend(guarded.write);
        writable.extend(ground.writable());
        if reach.network == Network::Open {
            writable.extend(ground.downloads());
        }
        let mut readable = ground.readable();
        let links = ground.links(&readable).into_iter().collect();
        // A root is writable as a whole, and mounted after what is read.
        readable.retain(|path| !reach.roots.iter().any(|root| path.starts_with(root)));
        let temporary = Some(reach.temporary.clone()).filter(|path| path.is_dir());
        // Every root is a mount of its own, so that none can be moved by way of another.
        writable.sort();
        writable.dedup();
        let seen = |path: &PathBuf| {
            let under = |list: &[PathBuf]| list.iter().any(|one| path.starts_with(one));
            under(&readable) || under(&writable)
        };
        let mut secrets = ground.secrets();
        secrets.retain(seen);
        Self {
            home: ground
                .home
                .as_ref()
                .and_then(|home| home.canonicalize().ok()),
            links,
            readable,
            writable,
            pinned: guarded.pinned,
            frozen: guarded.frozen,
            absent: guarded.absent,
            secrets,
            temporary,
            first_root: reach.roots.first().cloned().unwrap_or_else(|| "/".into()),
        }
    }

    fn mount(&self, shape: Shape, helper: &Path, mounts: &mut Mounts) {
        mounts.at("--dev", "/dev");
        if shape.private_proc {
            mounts.at("--proc", "/proc");
        } else {
            mounts.bind("--ro-bind", Path::new("/proc"));
        }
        match &self.temporary {
            Some(folder) => {
                mounts.onto("--bind", folder, Path::new("/tmp"));
                self.private_mount_points(mounts);
            }
            None => mounts.at("--tmpfs", "/tmp"),
        }
        mounts.at("--tmpfs", "/var/tmp");
        mounts.at("--tmpfs", "/run");
        if let Some(home) = &self.home {
            mounts.at("--tmpfs", home);
        }
        if let Some(home) = self.own_home() {
            let folders = PASSING.iter().map(|name| home.join(name));
            for folder in folders.filter(|folder| !self.is_link(folder)) {
                mounts.at("--tmpfs", folder);
            }
        }
        for (link, target) in &self.links {
            mounts.onto("--symlink", target, link);
        }
        for path in &self.readable {
            mounts.bind("--ro-bind-try", path);
        }
        for path in &self.writable {
            mounts.bind("--bind-try", path);
        }
        for path in &self.pinned {
            mounts.bind("--bind-try", path);
        }
        for path in &self.absent {
            mounts.at("--tmpfs", path);
            mounts.at("--remount-ro", path);
        }
        for path in &self.frozen {
            mounts.bind("--ro-bind-try", path);
        }
        for path in &self.secrets {
            if path.is_dir() {
                mounts.at("--tmpfs", path);
            } else {
                mounts.onto("--ro-bind-try", Path::new("/dev/null"), path);
            }
        }
        // It lies in a folder of ours, which may be one that is kept back.
        if let Some(folder) = &self.temporary {
            mounts.bind("--bind", folder);
        }
        for path in self.secrets.iter().filter(|path| path.is_dir()) {
            mounts.at("--remount-ro", path);
        }
        if let Some(home) = self.own_home() {
            mounts.at("--remount-ro", home);
        }
        mounts.onto("--ro-bind", helper, &Path::new(INSIDE).join(HELPER));
        mounts.at("--remount-ro", "/");
    }

    /// The home folder where it is memory, and not a part of what the program may see.
    fn own_home(&self) -> Option<&Path> {
        let is_shown = |home: &Path| {
            let mut shown = self.readable.iter().chain(&self.writable);
            shown.any(|path| home.starts_with(path))
        };
        self.home.as_deref().filter(|home| !is_shown(home))
    }

    fn is_link(&self, path: &Path) -> bool {
        self.links.iter().any(|(link, _)| link == path)
    }

    /// What is mounted below `/tmp` needs folders there, which lie in the session's own
    /// temporary folder and stay: they are nobody else's.
    fn private_mount_points(&self, mounts: &mut Mounts) {
        // The home folder is memory, and what lies below it needs nothing here.
        let is_in_home = |path: &Path| {
            let home = self.home.as_deref();
            home.is_some_and(|home| path != home && path.starts_with(home))
        };
        let places = self
            .readable
            .iter()
            .chain(&self.writable)
            .chain(&self.temporary)
            .chain(&self.home);
        let mut folders: Vec<&Path> = places
            .flat_map(|path| path.ancestors())
            .filter(|path| path.starts_with("/tmp") && *path != Path::new("/tmp"))
            .filter(|path| path.is_dir() && !is_in_home(path))
            .collect();
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            mounts.0.extend(["--perms", "0700"].map(OsString::from));
            mounts.at("--dir", folder);
        }
    }

    /// For Landlock, which knows nothing of mounts that are read-only anyway.
    fn writable_inside(&self) -> Vec<PathBuf> {
        let mut inside = self.writable.clone();
        inside.extend(["/tmp", "/var/tmp", "/run", "/dev/shm"].map(PathBuf::from));
        inside.extend(self.home.clone());
        inside.extend(self.temporary.clone());
        outermost(inside)
    }

    /// Where the program starts: a folder that is not there inside would start nothing at
    /// all, so it is the session's own then.
    fn folder<'a>(&'a self, cwd: &'a Path) -> &'a Path {
        let fixed = ["/tmp", "/var/tmp", "/run", "/dev", "/proc"];
        let is_there = self
            .readable
            .iter()
            .chain(&self.writable)
            .chain(&self.temporary)
            .any(|path| cwd.starts_with(path))
            || self.home.as_deref() == Some(cwd)
            || fixed.iter().any(|path| cwd == Path::new(path))
            || cwd.parent().is_none();
        if is_there { cwd } else { &self.first_root }
    }
}

/// Bubblewrap's arguments for mounts, which it does in order.
#[derive(Default)]
struct Mounts(Vec<OsString>);

impl Mounts {
    fn at(&mut self, what: &str, path: impl AsRef<OsStr>) {
        self.0.push(what.into());
        self.0.push(path.as_ref().to_owned());
    }

    fn bind(&mut self, what: &str, path: &Path) {
        self.onto(what, path, path);
    }

    fn onto(&mut self, what: &str, from: &Path, to: &Path) {
        self.0.push(what.into());
        self.0.push(from.into());
        self.0.push(to.into());
    }
}

#[cfg(test)]
mod tests;
