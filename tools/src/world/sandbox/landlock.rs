//! The provider `landlock`: our helper alone, which confines itself and becomes the
//! program. Works without any other program and without namespaces, so it is what is
//! left inside containers; it is not called isolated, since what the kernel offers here
//! leaves gaps ([`GAPS`]).

use std::path::PathBuf;

use crate::world::sandbox::ground::{Ground, carve, outermost};
use crate::world::sandbox::guess::SeenRoots;
use crate::world::sandbox::order::{Order, Sockets};
use crate::world::sandbox::{Denial, Network, Sandbox, SandboxRefusal, SandboxRequest, Wrapped};

/// What Landlock alone does not enforce, whatever the kernel's version.
pub const GAPS: &[&str] = &[
    "files that run code later, such as .git/hooks, can be changed inside the roots",
    "modes and times of the user's own files anywhere can be changed, though not their contents",
    "names, sizes and times of files anywhere can be looked up, though not their contents",
    "the list of processes and their command lines can be read",
];

/// Devices that programs write to.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// To read, besides what the machine has for every provider.
const READ: &[&str] = &["/proc", "/dev/null", "/dev/fd"];

/// See the module.
#[derive(Debug)]
pub struct LandlockSandbox {
    ground: Ground,
    program: PathBuf,
    seen: SeenRoots,
}

impl LandlockSandbox {
    /// `program` is what acts as the helper when it is called by its name, seen from a
    /// process of ours: `/proc/self/exe`.
    pub fn new(ground: Ground, program: PathBuf) -> Self {
        Self {
            ground,
            program,
            seen: SeenRoots::default(),
        }
    }

    fn order(&self, request: SandboxRequest) -> Order {
        let ground = &self.ground;
        let reach = request.reach;
        let secrets = ground.secrets();
        let mut read: Vec<PathBuf> = READ.iter().map(PathBuf::from).collect();
        read.extend(
            ground
                .readable()
                .iter()
                .flat_map(|path| carve(path, &secrets)),
        );
        let guarded = super::guarded::guarded(&reach.roots);
        let mut write = ground.writable();
        write.extend(reach.roots);
        write.extend(guarded.write);
        if reach.network == Network::Open {
            write.extend(ground.downloads());
        }
        let mut write: Vec<PathBuf> = outermost(write)
            .iter()
            .flat_map(|path| {
                // A root may lie in a folder that is kept back; what it holds counts.
                let below: Vec<PathBuf> = secrets
                    .iter()
                    .filter(|secret| secret.starts_with(path) && *secret != path)
                    .cloned()
                    .collect();
                carve(path, &below)
            })
            .collect();
        // Ours, and lies among what is hidden.
        if !reach.temporary.as_os_str().is_empty() {
            write.push(reach.temporary);
        }
        Order {
            read,
            write,
            devices: DEVICES.iter().map(PathBuf::from).collect(),
            sockets: match reach.network {
                Network::Closed => Sockets::Closed,
                Network::Open => Sockets::Open,
            },
            required: true,
            argv: request.argv,
        }
    }
}

impl Sandbox for LandlockSandbox {
    fn name(&self) -> &'static str {
        "landlock"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        self.seen.note(&request.reach.roots);
        let program = self.program.clone().into_os_string();
        Ok(Wrapped {
            program: Some(program),
            argv: self.order(request).to_argv(),
        })
    }

    fn isolated(&self) -> bool {
        false
    }

    fn guess(&self, text: &str, network: Network) -> Option<Denial> {
        self.seen.guess(text, network)
    }
}
