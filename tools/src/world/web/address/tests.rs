#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::{Addresses, Class, class};

fn is_never(address: &str) -> bool {
    matches!(class(address.parse().unwrap()), Class::Never(_))
}

fn is_private(address: &str) -> bool {
    matches!(class(address.parse().unwrap()), Class::Private(_))
}

#[test]
fn check_156_loopback_link_local_and_metadata_are_never_reached() {
    for address in [
        "127.0.0.1",
        "127.255.0.9",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "169.254.1.1",
        "224.0.0.1",
        "239.1.1.1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "198.51.100.7",
        "203.0.113.9",
        "198.18.0.1",
        "198.19.255.1",
        "192.0.0.192",
        "100.100.100.200",
        "168.63.129.16",
        "::",
        "::1",
        "fe80::1",
        "febf::1",
        "ff02::1",
        "2001:db8::1",
        "3fff::1",
        "2001::1",
        "100::1",
        "fd00:ec2::254",
        "4000::1",
        // Forms of IPv6 for an IPv4 address.
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2a00::5efe:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0.0.0.0",
    ] {
        assert!(is_never(address), "{address}");
        for reach in [Addresses::Public, Addresses::Private] {
            assert!(reach.permit(address.parse().unwrap()).is_err(), "{address}");
        }
    }
}

#[test]
fn check_160_private_ranges_are_blocked_unless_they_are_opened() {
    for address in [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.1.1",
        "fc00::1",
        "fdff::1",
        "fec0::1",
        "::ffff:10.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
        "2002:a00:1::",
        "2002:c0a8:101::",
    ] {
        assert!(is_private(address), "{address}");
        let address: IpAddr = address.parse().unwrap();
        assert!(Addresses::Public.permit(address).is_err());
        assert!(Addresses::Private.permit(address).is_ok());
    }
}

#[test]
fn what_anybody_reaches_is_public() {
    for address in [
        "1.1.1.1",
        "8.8.8.8",
        "172.15.0.1",
        "172.32.0.1",
        "100.63.0.1",
        "100.128.0.1",
        "192.0.1.1",
        "11.0.0.1",
        "2606:4700::1111",
        "2a00:1450:4001::200e",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2001:200::1",
    ] {
        assert_eq!(class(address.parse().unwrap()), Class::Public, "{address}");
    }
}

proptest! {
    #[test]
    fn a_form_of_ipv6_is_what_its_ipv4_address_is(bits in any::<u32>()) {
        let address = Ipv4Addr::from(bits);
        let [a, b, c, d] = address.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let wanted = class(IpAddr::V4(address));
        for form in [
            address.to_ipv6_mapped(),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        ] {
            prop_assert_eq!(class(IpAddr::V6(form)), wanted);
        }
    }

    #[test]
    fn the_standard_library_knows_none_that_is_taken_for_public(bits in any::<u32>()) {
        let address = Ipv4Addr::from(bits);
        let near = address.is_loopback() || address.is_private() || address.is_link_local()
            || address.is_multicast() || address.is_broadcast() || address.is_documentation()
            || address.is_unspecified();
        if near {
            prop_assert_ne!(class(IpAddr::V4(address)), Class::Public);
        }
    }

    #[test]
    fn outside_of_the_global_range_nothing_of_ipv6_is_public_but_translated(bits in any::<u128>()) {
        let address = Ipv6Addr::from(bits);
        if class(IpAddr::V6(address)) == Class::Public {
            let first = address.segments()[0];
            let translated = matches!(first, 0 | 0x64);
            let isatap = address.segments()[5] == 0x5efe;
            prop_assert!(matches!(first, 0x2000..=0x3fff) || translated || isatap);
        }
    }
}
