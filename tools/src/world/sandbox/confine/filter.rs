//! The seccomp filter: what no program of an agent needs, and what would undo the rest.
//!
//! A list of what is refused, as in the field's other sandboxes: a list of what is allowed
//! would break programs with every new kernel. Refusals are errors, which programs handle;
//! calls of another instruction set end the program, since the list does not know them.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter, sock_filter,
};

use crate::world::sandbox::order::Sockets;

/// The filter could not be made or installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    #[error("there is no filter for this machine's instruction set")]
    Machine,
    #[error(transparent)]
    Backend(#[from] seccompiler::BackendError),
    #[error(transparent)]
    Install(#[from] seccompiler::Error),
}

/// Refused with `EPERM` whatever their arguments.
const REFUSED: &[i64] = &[
    // Into other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Into the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_syslog,
    libc::SYS_lookup_dcookie,
    libc::SYS_fanotify_init,
    // Keys of the session that started us.
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // What is mounted where, and files past their folders.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_setns,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
    libc::SYS__sysctl,
    libc::SYS_sysfs,
    libc::SYS_ustat,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[i64] = &[];

/// Newer than the library's list, and the same everywhere.
const OPEN_TREE_ATTR: i64 = 467;

/// Answered as if the kernel had none of them, so that libraries take the older way:
/// arguments of `clone3` lie where no filter sees them, and a ring does calls unseen.
const UNKNOWN: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Namespaces: a new one makes us root in it, and with that opens what root alone can.
const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    // CLONE_NEWTIME, which shares its bit with a signal number in `clone`, counts in
    // `unshare` alone.
];
const NEW_TIME: i32 = 0x80;

/// Types to terminals and to the console's selection on behalf of another program.
const TERMINAL_TRICKS: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX];

/// Installs the filter for this process and all that comes from it.
pub(super) fn install(sockets: Sockets) -> Result<(), FilterError> {
    for program in programs(sockets)? {
        apply_filter(&program)?;
    }
    Ok(())
}

/// All filters, the one with the fewest calls first: each looks at every call.
fn programs(sockets: Sockets) -> Result<Vec<BpfProgram>, FilterError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| FilterError::Machine)?;
    let unknown = UNKNOWN.iter().map(|call| (*call, Vec::new())).collect();
    let mut programs = Vec::new();
    if machine == TargetArch::x86_64 {
        programs.push(no_x32());
    }
    programs.push(filter(unknown, libc::ENOSYS, machine)?);
    programs.push(filter(refused(sockets)?, libc::EPERM, machine)?);
    Ok(programs)
}

fn filter(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    error: i32,
    machine: TargetArch,
) -> Result<BpfProgram, FilterError> {
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(error.unsigned_abs()),
        machine,
    )?;
    Ok(filter.try_into()?)
}

fn refused(sockets: Sockets) -> Result<BTreeMap<i64, Vec<SeccompRule>>, FilterError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED
        .iter()
        .chain(REFUSED_HERE)
        .chain(&[OPEN_TREE_ATTR])
        .map(|call| (*call, Vec::new()))
        .collect();
    let flag = |flag: i32| -> Result<SeccompRule, FilterError> {
        let bit = u64::from(flag.unsigned_abs());
        rule(&[(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bit), bit)])
    };
    let namespaces = || NAMESPACES.iter().map(|one| flag(*one));
    rules.insert(libc::SYS_clone, namespaces().collect::<Result<_, _>>()?);
    let unshared = namespaces().chain(std::iter::once(flag(NEW_TIME)));
    rules.insert(libc::SYS_unshare, unshared.collect::<Result<_, _>>()?);
    let tricks = TERMINAL_TRICKS
        .iter()
        .map(|request| rule(&[(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *request)]));
    rules.insert(libc::SYS_ioctl, tricks.collect::<Result<_, _>>()?);
    close_sockets(&mut rules, sockets)?;
    Ok(rules)
}

/// A Unix socket that is reached by its path cannot be told from another at `connect`,
/// whose address lies in memory; so none can be made, but for pairs. A pair of datagram
/// sockets could still send to any path, so pairs are streams.
fn close_sockets(
    rules: &mut BTreeMap<i64, Vec<SeccompRule>>,
    sockets: Sockets,
) -> Result<(), FilterError> {
    let not = |families: &[i32]| -> Result<SeccompRule, FilterError> {
        let conditions: Vec<Condition> = families
            .iter()
            .map(|family| {
                let family = u64::from(family.unsigned_abs());
                (0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
            })
            .collect();
        rule(&conditions)
    };
    // Of netlink, the interfaces and routes, which libraries list before they connect.
    let netlink = rule(&[
        (
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            u64::from(libc::AF_NETLINK.unsigned_abs()),
        ),
        (
            2,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Ne,
            u64::from(libc::NETLINK_ROUTE.unsigned_abs()),
        ),
    ])?;
    let internet = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let made = match sockets {
        Sockets::Closed => Vec::new(),
        Sockets::Private => vec![not(&internet)?, netlink],
        Sockets::Open => {
            let [one, two, three] = internet;
            vec![not(&[one, two, three, libc::AF_UNIX])?, netlink]
        }
    };
    rules.insert(libc::SYS_socket, made);
    if sockets == Sockets::Open {
        return Ok(());
    }
    let mut pairs = vec![not(&[libc::AF_UNIX])?];
    for kind in [libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_RDM] {
        pairs.push(rule(&[(
            1,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::MaskedEq(0xf),
            u64::from(kind.unsigned_abs()),
        )])?);
    }
    rules.insert(libc::SYS_socketpair, pairs);
    Ok(())
}

type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// Matches where all conditions do.
fn rule(conditions: &[Condition]) -> Result<SeccompRule, FilterError> {
    let conditions = conditions
        .iter()
        .map(|(argument, length, operator, value)| {
            SeccompCondition::new(*argument, length.clone(), operator.clone(), *value)
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

/// On x86_64 every call has a second number for a 32-bit memory model, under the same
/// name of the machine; nothing uses it, and the lists above do not speak of it.
fn no_x32() -> BpfProgram {
    const LOAD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const X32: u32 = 0x4000_0000;
    const ERRNO: u32 = 0x0005_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    vec![
        step(LOAD, 0, 0, 0),
        step(JUMP_IF_AT_LEAST, 0, 1, X32),
        step(RETURN, 0, 0, ERRNO | libc::ENOSYS.unsigned_abs()),
        step(RETURN, 0, 0, ALLOW),
    ]
}
