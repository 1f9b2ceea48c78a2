"""Where webhooks may be sent. A URL that somebody else chose must not lead into our own network.

What a name resolves to is checked when it is connected to, each time: a name may lead elsewhere tomorrow.
"""

from __future__ import annotations

import ipaddress
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from nonchalant.errors import BadRequest

MAX_URL: Final = 2_000

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Targets(StrEnum):
    """Whom webhooks may reach."""

    PUBLIC = "public"  # addresses of the Internet, by https
    ANY = "any"  # our own network too, and plain http


# Beyond what Python calls private, reserved or multicast; its lists differ from version to version.
_FORBIDDEN: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
            "168.63.129.16/32",  # Azure's own, though it looks public
            *("::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16"),
            *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
        ),
    )
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")


def parse_url(text: str, targets: Targets, field: str = "url") -> str:
    """A URL that may be delivered to, as far as it can tell by itself."""
    schemes = ("https",) if targets is Targets.PUBLIC else ("https", "http")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    plain = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    if not host or not plain or len(text) > MAX_URL or port == 0:
        raise BadRequest(f"expected a URL of at most {MAX_URL} characters, such as https://example.com/hook", field)
    if parts.scheme not in schemes:
        remedy = "; webhook_targets in the settings allows http" if targets is Targets.PUBLIC else ""
        raise BadRequest(f"expected {' or '.join(schemes)}{remedy}", field)
    if parts.username is not None or parts.password is not None:
        raise BadRequest("must not carry a user or a password; deliveries are signed", field)
    if parts.fragment:
        raise BadRequest("must not have a fragment (#…): it is never sent", field)
    literal = address_in(host)
    if targets is Targets.PUBLIC and ((literal is not None and not is_public(literal)) or _is_local_name(host)):
        raise BadRequest("must not lead into a private network; webhook_targets in the settings allows it", field)
    return text


def address_in(host: str) -> IpAddress | None:
    """The address a host is written as; None: it is a name."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None


def is_public(address: IpAddress) -> bool:
    """Whether it is an address of the Internet, also behind the forms in which IPv6 carries one of IPv4."""
    inner = _carried(address)
    if inner is not None:
        return is_public(inner)
    if any(address in network for network in _FORBIDDEN if network.version == address.version):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


def _carried(address: IpAddress) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def _is_local_name(host: str) -> bool:
    name = host.rstrip(".").lower()
    return name == "localhost" or name.endswith((".localhost", ".local", ".internal"))
