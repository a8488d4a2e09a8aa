//! IP addresses and networks by the rules and with the errors of Go's net/netip.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address without a zone, and not an IPv4 address inside an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip(pub(super) IpAddr);

/// A network, whose address may have bits beyond the prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    pub(super) address: Ip,
    pub(super) prefix: u8,
}

impl Ip {
    pub(super) fn parse(text: &str) -> Result<Ip, String> {
        let (address, zone) = parse_address(text).map_err(|error| {
            format!("IP Address {text:?} parse error during conversion from string: {error}")
        })?;
        if zone {
            return Err(format!("IP address {text:?} with zone value is not allowed"));
        }
        if is_mapped(address) {
            return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
        }
        Ok(Ip(address))
    }

    /// Returns the length in bytes.
    pub(super) fn len(self) -> usize {
        if self.0.is_ipv4() { 4 } else { 16 }
    }

    pub(super) fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
            IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
        }
    }

    pub(super) fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        }
    }

    pub(super) fn is_global_unicast(self) -> bool {
        let broadcast = self.0 == IpAddr::V4(Ipv4Addr::BROADCAST);
        !broadcast
            && !self.0.is_unspecified()
            && !self.0.is_loopback()
            && !self.0.is_multicast()
            && !self.is_link_local_unicast()
    }

    fn bits(self) -> u128 {
        match self.0 {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Result<Cidr, String> {
        // The error has the same start twice.
        let start = "network address parse error during conversion from string: ";
        let fail =
            |reason: String| Err(format!("{start}{start}netip.ParsePrefix({text:?}): {reason}"));
        let Some((address, bits)) = text.rsplit_once('/') else {
            return fail("no '/'".to_owned());
        };
        let (address, zone) = match parse_address(address) {
            Ok(found) => found,
            Err(error) => return fail(error),
        };
        if zone {
            return fail("IPv6 zones cannot be present in a prefix".to_owned());
        }
        let max = if address.is_ipv4() { 32 } else { 128 };
        let leading = bits.len() > 1 && !matches!(bits.as_bytes()[0], b'1'..=b'9');
        let Some(prefix) = bits.parse::<i64>().ok().filter(|_| !leading) else {
            return fail(format!("bad bits after slash: {bits:?}"));
        };
        if !(0..=max).contains(&prefix) {
            return fail("prefix length out of range".to_owned());
        }
        if is_mapped(address) {
            return Err(format!("{start}IPv4-mapped IPv6 address {text:?} is not allowed"));
        }
        // At most 128.
        Ok(Cidr { address: Ip(address), prefix: prefix as u8 })
    }

    pub(super) fn masked(self) -> Cidr {
        let bits = self.address.bits() & self.mask();
        let address = match self.address.0 {
            // The first 32 bits.
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        Cidr { address: Ip(address), ..self }
    }

    pub(super) fn contains(self, ip: Ip) -> bool {
        self.address.len() == ip.len() && (self.address.bits() ^ ip.bits()) & self.mask() == 0
    }

    pub(super) fn contains_network(self, other: Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.0, self.prefix)
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Returns the address and whether it has a zone, or the error of `netip.ParseAddr`.
fn parse_address(text: &str) -> Result<(IpAddr, bool), String> {
    let parsed = match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => parse_v4(text).map(|octets| (Ipv4Addr::from(octets).into(), false)),
        Some(b':') => parse_v6(text),
        Some(_) => Err(("missing IPv6 address", "")),
        None => Err(("unable to parse IP", "")),
    };
    parsed.map_err(|(reason, at)| {
        let at = if at.is_empty() { String::new() } else { format!(" (at {at:?})") };
        format!("ParseAddr({text:?}): {reason}{at}")
    })
}

type Refused<'t> = (&'static str, &'t str);

fn parse_v4(text: &str) -> Result<[u8; 4], Refused<'_>> {
    let mut octets = [0; 4];
    let mut at = 0;
    let mut digits = 0;
    let mut value = 0_u16;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                if digits == 0 || i == text.len() - 1 {
                    return Err(("IPv4 field must have at least one digit", &text[i..]));
                }
                if at == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                octets[at] = value as u8;
                at += 1;
                (value, digits) = (0, 0);
            }
            _ => return Err(("unexpected character", text.get(i..).unwrap_or_default())),
        }
    }
    if at < 3 {
        return Err(("IPv4 address too short", ""));
    }
    octets[3] = value as u8;
    Ok(octets)
}

fn parse_v6(text: &str) -> Result<(IpAddr, bool), Refused<'_>> {
    let (mut rest, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", "")),
        Some((address, _)) => (address, true),
        None => (text, false),
    };
    let mut bytes = Vec::with_capacity(16);
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
    }
    while bytes.len() < 16 && !(rest.is_empty() && ellipsis == Some(bytes.len())) {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        if rest[digits..].starts_with('.') {
            if ellipsis.is_none() && bytes.len() != 12 {
                let reason = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err((reason, rest));
            }
            if bytes.len() > 12 {
                let reason =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err((reason, rest));
            }
            bytes.extend(parse_v4(rest)?);
            rest = "";
            break;
        }
        let group = u16::from_str_radix(&rest[..digits], 16).unwrap_or_default();
        bytes.extend(group.to_be_bytes());
        rest = &rest[digits..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(bytes.len());
            rest = after;
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match ellipsis {
        None if bytes.len() < 16 => return Err(("address string too short", "")),
        Some(_) if bytes.len() >= 16 => {
            return Err(("the :: must expand to at least one field of zeros", ""));
        }
        Some(at) => {
            let zeros = std::iter::repeat_n(0, 16 - bytes.len());
            bytes.splice(at..at, zeros);
        }
        None => {}
    }
    let octets: [u8; 16] = bytes.try_into().unwrap_or_default();
    Ok((Ipv6Addr::from(octets).into(), zone))
}
