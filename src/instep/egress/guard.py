"""Outbound addresses that users name: an address is looked up once, and an inner one is refused.

An address given by a user can point at this machine, its network or its cloud's metadata. So a name is resolved
once, every answer is judged, and the socket goes to the judged address itself: a second look-up has no say.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from instep.errors import ConnectError, ProjectError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]

_METADATA = frozenset(
    map(ipaddress.ip_address, ("168.63.129.16", "169.254.169.254", "100.100.100.200", "fd00:ec2::254"))
)
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?|[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*")


class EgressRefused(ConnectError):
    """The address is not one that may be connected to."""


def looked_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, in the order in which the system would try them. Raises OSError."""
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in addresses))


def as_written(host: str, port: int) -> Sequence[str]:
    """Return the address that a host is by its own words, as the system reads them; OSError for a name of others."""
    if host.lower().rstrip(".").rpartition(".")[2] == "localhost":
        return ["127.0.0.1"]
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return [str(answer[4][0]) for answer in answers]


@dataclass(frozen=True)
class JudgedHost:
    """A host whose addresses were judged."""

    host: str
    port: int
    addresses: tuple[str, ...]
    trusted: bool
    """Every one of them is allow-listed."""


@dataclass(frozen=True)
class EgressGuard:
    """Decides which hosts requests may reach."""

    allow: tuple[str, ...] = ()
    """Networks (`10.0.0.0/8`), addresses and host names that may be reached although they are inner ones."""
    resolve: Resolve = field(default=looked_up, repr=False)

    def target(self, host: str, port: int) -> JudgedHost:
        """Return the judged addresses of a host; EgressRefused if one of them may not be reached, ConnectError if there
        are none."""
        if not _HOST.fullmatch(host) or not 0 < port < 65536:
            raise EgressRefused(f"{host!r} port {port} is not an address", hint="write a host name and a port")
        try:
            addresses = tuple(self.resolve(host, port))
        except (OSError, UnicodeError):
            addresses = ()
        if not addresses:
            raise ConnectError(f"the host {host} is not known", hint="check its spelling and the network")
        named = host.lower().rstrip(".") in {name.lower() for name in self.allow}
        trusted = [named or self._listed(text) for text in addresses]
        for text, is_trusted in zip(addresses, trusted, strict=True):
            if not is_trusted and (why := inner(text)):
                what = f"{host} is" if host == text else f"{host} is {text},"
                raise EgressRefused(
                    f"nothing is sent there: {what} {why}",
                    hint=f"if it is meant, list it: `egress: {{allow: [{text}]}}`",
                )
        return JudgedHost(host, port, addresses, all(trusted))

    def judged_as_written(self, host: str, port: int) -> JudgedHost | None:
        """Return a host that is judged without looking it up, None for a name; EgressRefused as `target`."""
        try:
            return EgressGuard(self.allow, as_written).target(host, port)
        except EgressRefused:
            raise
        except ConnectError:
            return None

    def connect(self, host: str, port: int, timeout: float) -> socket.socket:
        """Return a connection to a judged address. Raises EgressRefused or ConnectError; `timeout` in seconds."""
        return connect(self.target(host, port), timeout)

    def _listed(self, text: str) -> bool:
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
        return any(address in network for network in map(_network, self.allow) if network is not None)


def connect(target: JudgedHost, timeout: float) -> socket.socket:
    """Return a connection to the first of the addresses that answers."""
    why = ""
    for address in target.addresses:
        try:
            return socket.create_connection((address, target.port), timeout)
        except OSError as error:
            why = "it does not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
    raise ConnectError(f"{target.host} port {target.port} cannot be reached: {why}", hint="check that it runs")


def inner(text: str) -> str:
    """Return why an address is none of the public internet, "" if it is."""
    address = _plain(ipaddress.ip_address(text.partition("%")[0]))
    if address in _METADATA:
        return "an address of a cloud's metadata"
    if address.is_loopback or address.is_unspecified:
        return "this machine itself"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast or address.is_reserved:
        return "no address of one machine"
    return "" if address.is_global else "an address of a private network"


def _plain(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    for wrapped in (address.ipv4_mapped, address.sixtofour, address.teredo[1] if address.teredo else None):
        if wrapped is not None:
            return wrapped
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def check_allowed(text: str) -> str:
    """Return an entry of an allow-list: a network, an address or a host name; ProjectError if it is none."""
    if _network(text) is None and ("/" in text or not _HOST.fullmatch(text)):
        raise ProjectError(f"{text!r} is not a network, address or host", hint="write 10.0.0.0/8 or mail.example.org")
    return text


BUCKETS = ("s3", "s3a", "s3n", "gs", "abfs", "abfss")
"""The schemes of their URIs: what has another one, or none, could be a file of this machine."""
