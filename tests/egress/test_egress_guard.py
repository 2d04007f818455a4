"""Inner addresses in every spelling, names that lead to them, and the judged address is the one that is used."""

from __future__ import annotations

import ipaddress
import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.egress.guard import EgressGuard, EgressRefused, check_allowed, connect, inner
from instep.errors import ConnectError, ProjectError

INNER = (
    "127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "017700000001", "0", "0.0.0.0", "localhost",
    "10.0.0.1", "172.16.5.4", "192.168.1.1", "169.254.169.254", "2852039166", "0xa9fea9fe", "100.64.0.1",
    "100.100.100.200", "168.63.129.16", "224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
    "::1", "::", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
    "2001:db8::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
)  # fmt: skip
PUBLIC = ("93.184.216.34", "2606:4700::6810:84e5", "::ffff:93.184.216.34", "64:ff9b::5db8:d822")


@pytest.mark.parametrize("host", INNER)
def test_inner_addresses_are_refused_in_every_spelling(host: str) -> None:
    with pytest.raises(EgressRefused):
        EgressGuard().target(host, 443)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_not(address: str) -> None:
    assert inner(address) == ""
    assert EgressGuard(resolve=lambda *_: [address]).target("a.example", 443).addresses == (address,)


@pytest.mark.parametrize(
    "host", ["", "a b", "a\nb", "a/b", "a@b", "-a", "a\\b", "ä.example", "[::1]", "a" * 300, "a#b", "%31"]
)
def test_what_is_no_host_is_not_looked_up(host: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError(host)

    with pytest.raises(EgressRefused):
        EgressGuard(resolve=resolve).target(host, 443)


def test_one_inner_answer_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(EgressRefused, match=r"10\.0\.0\.8, an address of a private network"):
        EgressGuard(resolve=lambda *_: ["93.184.216.34", "10.0.0.8"]).target("a.example", 443)


@pytest.mark.parametrize("allow", ["127.0.0.0/8", "127.0.0.1", "a.example", "A.Example"])
def test_what_is_listed_may_be_reached(allow: str) -> None:
    target = EgressGuard((allow,), resolve=lambda *_: ["127.0.0.1"]).target("a.example", 443)
    assert target.trusted


def test_a_listed_network_holds_for_the_addresses_within_only() -> None:
    with pytest.raises(EgressRefused):
        EgressGuard(("10.0.0.0/8",)).target("127.0.0.1", 443)
    assert EgressGuard(("127.0.0.0/8",)).target("::ffff:127.0.0.1", 443).trusted


def test_a_name_is_looked_up_once_and_the_judged_address_is_used() -> None:
    """An attacker's server answers with a public address first and an inner one the next time."""
    answers = [["127.0.0.1"], ["10.255.255.1"]]
    with socket.create_server(("127.0.0.1", 0)) as server:
        guard = EgressGuard(("127.0.0.1",), resolve=lambda *_: answers.pop(0))
        with guard.connect("rebinds.example", server.getsockname()[1], 5) as sock:
            assert sock.getpeername()[0] == "127.0.0.1"
    assert len(answers) == 1


def test_unknown_hosts_and_closed_ports_are_named() -> None:
    def nothing(host: str, port: int) -> list[str]:
        raise socket.gaierror

    with pytest.raises(ConnectError, match=r"the host a\.example is not known"):
        EgressGuard(resolve=nothing).target("a.example", 25)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectError, match=f"localhost port {port} cannot be reached"):
        connect(EgressGuard(("127.0.0.1", "::1")).target("localhost", port), 5)


@pytest.mark.parametrize("text", ["10.0.0.0/8", "::1", "fd00::/8", "mail", "mail.example.org", "10.1.2.3/8"])
def test_entries_of_an_allow_list(text: str) -> None:
    assert check_allowed(text) == text


@pytest.mark.parametrize("text", ["", "10.0.0.0/99", "a b", "https://a.example/", "*"])
def test_what_is_no_entry(text: str) -> None:
    with pytest.raises(ProjectError):
        check_allowed(text)


@given(st.ip_addresses())
def test_no_address_that_python_calls_inner_is_called_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global and not (address.version == 6 and address.ipv4_mapped):
        assert inner(str(address)) or (address.version == 6 and (address.sixtofour or address.teredo))


@pytest.mark.parametrize(("address", "why"), [("127.0.0.1", "this machine itself"), ("10.0.0.8", "an address of a")])
def test_an_address_is_not_explained_by_itself(address: str, why: str) -> None:
    with pytest.raises(EgressRefused, match=rf"^nothing is sent there: {re.escape(address)} is {why}"):
        EgressGuard().target(address, 80)
