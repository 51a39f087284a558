//! What kind of place an address is: names are given by strangers, and what they mean may lie on this
//! machine or in its network.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of place an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anybody's.
    Public,
    /// This machine.
    Loopback,
    /// This network.
    Private,
    /// Link-local (cloud metadata among it), unspecified, multicast, reserved.
    Never,
}

/// The kind of an address, whichever way an IPv4 address is written into an IPv6 one.
pub fn kind(address: IpAddr) -> Kind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => embedded(address).map_or_else(|| kind_v6(address), kind_v4),
    }
}

fn kind_v4(address: Ipv4Addr) -> Kind {
    let [a, b, c, _] = address.octets();
    if address.is_loopback() {
        Kind::Loopback
    } else if address.is_private() || (a == 100 && (64..128).contains(&b)) {
        Kind::Private
    } else if address.is_link_local()
        || a == 0
        || a >= 224
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 0 && c == 0)
        || address.is_documentation()
    {
        Kind::Never
    } else {
        Kind::Public
    }
}

fn kind_v6(address: Ipv6Addr) -> Kind {
    let first = address.segments()[0];
    if address.is_loopback() {
        Kind::Loopback
    } else if first & 0xfe00 == 0xfc00 {
        Kind::Private
    } else if address.is_unspecified()
        || address.is_multicast()
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0
        || address.segments()[..2] == [0x2001, 0]
        || address.segments()[..2] == [0x2001, 0xdb8]
        || address.segments()[..3] == [0x64, 0xff9b, 1]
    {
        Kind::Never
    } else {
        Kind::Public
    }
}

/// The IPv4 address inside: mapped, translated, compatible, NAT64 or 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(from(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if !address.is_loopback() && !address.is_unspecified() => {
            Some(from(high, low))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_kind_however_they_are_written() {
        for (address, expected) in [
            ("93.184.216.34", Kind::Public),
            ("2606:4700::1111", Kind::Public),
            ("64:ff9b::5db8:d822", Kind::Public),
            ("127.0.0.1", Kind::Loopback),
            ("127.8.8.8", Kind::Loopback),
            ("::1", Kind::Loopback),
            ("::ffff:127.0.0.1", Kind::Loopback),
            ("2002:7f00:1::", Kind::Loopback),
            ("::ffff:0:127.0.0.1", Kind::Loopback),
            ("::ffff:0:10.0.0.9", Kind::Private),
            ("::ffff:0:169.254.169.254", Kind::Never),
            ("::ffff:0:93.184.216.34", Kind::Public),
            ("10.0.0.9", Kind::Private),
            ("172.16.0.1", Kind::Private),
            ("192.168.1.1", Kind::Private),
            ("100.64.0.1", Kind::Private),
            ("fd00::1", Kind::Private),
            ("64:ff9b::a00:9", Kind::Private),
            ("169.254.169.254", Kind::Never),
            ("::ffff:169.254.169.254", Kind::Never),
            ("::169.254.169.254", Kind::Never),
            ("64:ff9b::a9fe:a9fe", Kind::Never),
            ("64:ff9b:1::a9fe:a9fe", Kind::Never),
            ("2002:a9fe:a9fe::", Kind::Never),
            ("2001:0:4136:e378::1", Kind::Never),
            ("fe80::1", Kind::Never),
            ("0.0.0.0", Kind::Never),
            ("::", Kind::Never),
            ("224.0.0.1", Kind::Never),
            ("255.255.255.255", Kind::Never),
        ] {
            assert_eq!(kind(address.parse().unwrap()), expected, "{address}");
        }
    }
}
