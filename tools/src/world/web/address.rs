//! Which addresses a fetch may reach. A page is fetched by this machine, so an address that
//! means this machine, its network or its cloud's own services would give a model what the
//! network shows to nobody else (`Terret spec §6 WebFetch`, checks 156, 160).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How near an address may be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// What anybody on the internet reaches.
    #[default]
    Public,
    /// Also private networks: 10/8, 172.16/12, 192.168/16, 100.64/10, fc00::/7, fec0::/10.
    Private,
    /// Any address, this machine's own as well. For tests; no setting leads here.
    Every,
}

/// What an address is to a fetch. The text says what it is, for a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Public,
    /// Within somebody's own network.
    Private(&'static str),
    /// Never a page: this machine, its link, a cloud's metadata, or nobody's address.
    Never(&'static str),
}

impl Addresses {
    /// Whether this address may be reached; else what it is.
    ///
    /// # Errors
    /// What kind of address it is, in words.
    pub fn permit(self, address: IpAddr) -> Result<(), &'static str> {
        match (self, class(address)) {
            (Self::Every, _) | (_, Class::Public) | (Self::Private, Class::Private(_)) => Ok(()),
            (_, Class::Private(what) | Class::Never(what)) => Err(what),
        }
    }
}

/// What an address is. An IPv6 form that carries an IPv4 address is what that one is.
pub fn class(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => class_v4(address),
        IpAddr::V6(address) => class_v6(address),
    }
}

/// Addresses at which clouds answer for a machine's identity and keys; those that are also
/// link-local are covered by that.
const METADATA_V4: &[Ipv4Addr] = &[
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

fn class_v4(address: Ipv4Addr) -> Class {
    let [a, b, c, _] = address.octets();
    if METADATA_V4.contains(&address) {
        return Class::Never("a cloud's metadata address");
    }
    match (a, b, c) {
        (0, ..) => Class::Never("an unspecified address"),
        (127, ..) => Class::Never("a loopback address"),
        (169, 254, _) => Class::Never("a link-local address"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Class::Private("a private address"),
        (100, 64..=127, _) => Class::Private("an address of a provider's shared network"),
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => {
            Class::Never("an address for documentation")
        }
        (192, 0, 0) | (192, 88, 99) => Class::Never("a reserved address"),
        (198, 18..=19, _) => Class::Never("an address for benchmarks"),
        (224..=239, ..) => Class::Never("a multicast address"),
        (240..=255, ..) => Class::Never("a reserved address"),
        _ => Class::Public,
    }
}

fn class_v6(address: Ipv6Addr) -> Class {
    let segments = address.segments();
    let [first, second, third, ..] = segments;
    if let Some(inner) = embedded(segments) {
        return class_v4(inner);
    }
    // Two well-known addresses of clouds within fc00::/7, which `Private` would open.
    if segments == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
        || segments == [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
    {
        return Class::Never("a cloud's metadata address");
    }
    match (first, second) {
        _ if address.is_unspecified() => Class::Never("an unspecified address"),
        _ if address.is_loopback() => Class::Never("a loopback address"),
        (0x64, 0xff9b) if third == 1 => Class::Private("an address of a local translator"),
        (0xfc00..=0xfdff, _) => Class::Private("a private address"),
        (0xfec0..=0xfeff, _) => Class::Private("a site-local address"),
        (0xfe80..=0xfebf, _) => Class::Never("a link-local address"),
        (0xff00..=0xffff, _) => Class::Never("a multicast address"),
        (0x2001, 0xdb8) => Class::Never("an address for documentation"),
        (0x3fff, 0..=0xfff) => Class::Never("an address for documentation"),
        (0x2001, 0) => Class::Never("a tunnelled address"),
        (0x2001, 1..=0x1ff) => Class::Never("a reserved address"),
        (0x2000..=0x3fff, _) => Class::Public,
        _ => Class::Never("a reserved address"),
    }
}

/// The IPv4 address that a form of IPv6 stands for: mapped, translated (SIIT), compatible,
/// NAT64, 6to4, ISATAP.
fn embedded(segments: [u16; 8]) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // `::` and `::1` are no compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
