"""Hosts that nobody on a network hears."""

from __future__ import annotations

import pytest

from instep.stage.timeouts import proof_of_password

NEAR = ("/run/postgresql", "127.0.0.1", "127.8.9.10", "::1", "localhost", "LocalHost")
FAR = ("192.0.2.1", "fd00::2", "0.0.0.0", "127.0.0.1.example.org", "localhost.example.org", "localhost,db", "")


@pytest.mark.parametrize("host", [*NEAR, *FAR])
def test_the_password_itself_is_told_without_tls_on_this_machine_only(host: str) -> None:
    for mode in ("disable", "allow", "prefer"):
        assert proof_of_password(mode, host) == ("" if host in NEAR else "!password")
    for mode in ("require", "verify-ca", "verify-full"):
        assert proof_of_password(mode, host) == ""
