"""How a server is reached, in the project file: TLS, SSH, replicas and limits, each wrong value with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from project_types import Loads

from instep.bootstrap import App
from instep.errors import ProjectError

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----"
PROJECT = """\
version: 1
sources:
  db: {{type: {kind}, database: d, user: u, {more}}}
destinations: {{lake: {{type: iceberg}}}}
connections: {{c: {{}}}}
"""


def settings(loads: Loads, kind: str, more: str) -> Any:
    return loads(PROJECT.format(kind=kind, more=more), {"KEY": KEY, "PORT": "2222"}).source("db")


POSTGRES = [
    ("tls: {}", ("prefer", "", "")),
    ("tls: {mode: require}", ("require", "", "")),
    ("tls: {ca: ca.pem}", ("verify-full", "ca.pem", "")),
    ("tls: {mode: verify-ca, ca: ca.pem}", ("verify-ca", "ca.pem", "")),
    ("tls: {mode: verify-full}", ("verify-full", "", "")),
    ("tls: {cert: c.pem, key: '${env:KEY}'}", ("prefer", "", KEY)),
    ("sslmode: require", ("require", "", "")),
    ("sslmode: allow", ("prefer", "", "")),
    ("sslmode: require, sslrootcert: ca.pem", ("verify-ca", "ca.pem", "")),
]


@pytest.mark.parametrize(("more", "expected"), POSTGRES, ids=[p[0] for p in POSTGRES])
def test_tls_of_postgres(loads: Loads, tmp_path: Path, more: str, expected: tuple[str, str, str]) -> None:
    tls = settings(loads, "postgres", more).tls
    ca = str(tmp_path / expected[1]) if expected[1] else ""
    assert (tls.chosen, tls.ca, tls.key) == (expected[0], ca, expected[2])


MYSQL = [
    ("tls: {}", ("prefer", "", "")),
    ("tls: {ca: ca.pem}", ("verify-full", "ca.pem", "")),
    ("ssl: require", ("require", "", "")),
    ("ssl: verify_ca, ssl_ca: ca.pem", ("verify-ca", "ca.pem", "")),
    ("ssl_cert: c.pem, ssl_key: c.key", ("prefer", "", KEY)),
]


@pytest.mark.parametrize(("more", "expected"), MYSQL, ids=[m[0] for m in MYSQL])
def test_tls_of_mysql(loads: Loads, tmp_path: Path, more: str, expected: tuple[str, str, str]) -> None:
    (tmp_path / "c.key").write_text(KEY + "\n")
    tls = settings(loads, "mysql", more).tls
    ca = str(tmp_path / expected[1]) if expected[1] else ""
    assert (tls.chosen, tls.ca, tls.key) == (expected[0], ca, expected[2])


def test_ssh_reaches_the_source_with_its_secret_hidden(loads: Loads, tmp_path: Path) -> None:
    ssh = "ssh: {host: bastion, port: '${env:PORT}', user: me, key: '${env:KEY}', known_hosts: hosts}"
    text = PROJECT.format(kind="postgres", more=ssh)
    source: Any = App(loads(text, {"KEY": KEY, "PORT": "2222"})).source("db")
    hosts = str(tmp_path / "hosts")
    assert dict(source.config.ssh) == {
        "host": "bastion", "port": 2222, "user": "me", "key": KEY, "known_hosts": hosts, "host_key": "",
    }  # fmt: skip
    assert KEY not in repr(source)
    assert source.config.ssh.place == "me@bastion:2222"


def test_limits_and_replicas(loads: Loads) -> None:
    more = "read_replica: [r1, 'r2:5433'], max_connections: 4, rows_per_second: 5e3, statement_timeout: 2m"
    for kind in ("postgres", "mariadb"):
        found = settings(loads, kind, more)
        names = ("read_replica", "max_connections", "rows_per_second", "statement_timeout", "application_name")
        assert [getattr(found, name) for name in names] == [("r1", "r2:5433"), 4, 5000, 120, "instep"]


BAD = [
    ("tls: {mode: verify}", "tls.mode: must be one of"),
    ("tls: {mode: require, ca: ca.pem}", "tls: `ca` is looked at by the modes verify-ca and verify-full only"),
    ("tls: {cert: c.pem}", "tls: `cert` and `key` belong together"),
    ("tls: {cert: c.pem, key: k.pem}", "a secret must not be in the file"),
    ("tls: {mode: disable, cert: c.pem, key: '${env:KEY}'}", "without TLS no certificate"),
    ("tls: {moed: require}", "unknown key, did you mean 'mode'"),
    ("tls: {mode: require}, {old}: require", "is the former spelling of tls.mode"),
    ("ssh: {host: h}", "ssh.user: is required"),
    ("ssh: {host: '-oProxyCommand=x', user: me}", "'-oProxyCommand=x' is not the name of a host or user"),
    ("ssh: {host: h, user: u, key: abc}", "ssh.key: a secret must not be in the file"),
    ("ssh: {host: h, user: u, known_hosts: f, host_key: k}", "ssh: `known_hosts` and `host_key`"),
    ("read_replica: ['h:x']", "'h:x' must be host or host:port"),
    ("max_connections: 1", "must be at least 2"),
    ("max_connections: -1", "must be at least 0"),
    ("rows_per_second: -1", "must be at least 0"),
    ("application_name: 'a\tb'", "printable ASCII"),
]


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
@pytest.mark.parametrize(("more", "said"), BAD, ids=[b[0] for b in BAD])
def test_wrong_values_are_named_with_their_line(loads: Loads, kind: str, more: str, said: str) -> None:
    more = more.replace("{old}", "sslmode" if kind == "postgres" else "ssl")
    with pytest.raises(ProjectError) as told:
        settings(loads, kind, more)
    assert told.value.message.startswith("instep.yml:3: sources.db")
    assert said in told.value.message


def test_a_name_that_is_an_option_is_no_host_by_reference_either(loads: Loads) -> None:
    text = PROJECT.format(kind="postgres", more="ssh: {host: '${env:HOST}', user: me}")
    with pytest.raises(ProjectError, match="referenced value does not fit"):
        loads(text, {"HOST": "-oProxyCommand=x"}).source("db")
