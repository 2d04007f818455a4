"""PostgreSQL behind a real PgBouncer: recognised, read in one snapshot, and TLS with real certificates."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from certificates import make_certificates
from instep.errors import ConnectError, InstepError
from instep.project.sections.databases import PostgresSourceSection
from instep.project.sections.reach import Tls
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import CursorRange
from instep.sources.postgres.read import PostgresReader
from instep.sources.postgres.source import PostgresSource
from pooler import pooled
from postgres_server import Database, free_port


@pytest.fixture
def table(postgres: Database) -> Database:
    postgres.execute("CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1000) i")
    return postgres


def rows(config: PostgresSourceSection) -> int:
    with PostgresSource(config).snapshot() as snapshot:
        read_of = snapshot.discover().catalog.by_ref["public", "t"]
        read = TableRead(read_of, read_of, tuple(ColumnRead(c, c) for c in read_of.columns))
        chunks = snapshot.chunks(read, "t", CursorRange())
        with snapshot.reader.open() as one, snapshot.reader.open() as other:
            assert sum(b.num_rows for c in chunks for b in other.read(c)) == snapshot.count(read)
            return sum(b.num_rows for c in chunks for b in one.read(c))


def check(config: PostgresSourceSection, name: str) -> tuple[bool, str, str]:
    found = next(c for c in PostgresSource(config).test() if c.name == name)
    return found.ok, found.detail, found.hint


def test_a_pooler_is_recognised_and_read_through(table: Database) -> None:
    with pooled(table) as config:
        assert rows(config) == 1000
        ok, detail, hint = check(config, "pooler")
        assert (ok, "pooler is in between" in detail, "pool_size" in hint) == (False, True, True)
        assert check(config, "snapshot")[0]
    assert check(table.config, "pooler")[0]


@pytest.mark.slow
def test_a_pool_that_is_too_small_is_named_with_the_next_step(table: Database) -> None:
    with (
        pooled(table, default_pool_size="2", query_wait_timeout="2") as config,
        pytest.raises(InstepError, match="pooler has no free") as told,
    ):
        rows(config)
    assert "max_connections" in told.value.hint


@pytest.mark.slow
def test_where_only_one_connection_is_given_tables_are_read_one_after_another(table: Database) -> None:
    with (
        pooled(table, default_pool_size="1", query_wait_timeout="2") as config,
        PostgresSource(config).snapshot() as snapshot,
    ):
        assert "the read point cannot be shared" in snapshot.note
        assert snapshot.reader.snapshot == ""


def test_statement_pooling_is_refused(table: Database) -> None:
    with pooled(table, pool_mode="statement") as config, pytest.raises(ConnectError, match="pools statements") as told:
        PostgresSource(config).discover()
    assert "transaction" in told.value.hint


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


Change = Callable[[PostgresSourceSection, Path], PostgresSourceSection]


def verified(ca: str = "ca.pem", mode: str = "verify-full") -> Change:
    return lambda config, folder: config.model_copy(
        update={"tls": Tls.resolved(mode=mode, ca=str(folder / ca) if ca else "")}
    )


TLS: list[tuple[str, Change, str, str]] = [
    ("good", verified(), "", ""),
    ("good", lambda c, _: c.model_copy(update={"tls": Tls.resolved(mode="require")}), "", ""),
    ("good", lambda c, _: c.model_copy(update={"tls": Tls.resolved(mode="prefer")}), "", ""),
    ("other", verified(mode="verify-ca"), "", ""),
    ("other", verified(), "certificate is for another host", "verify-ca"),
    ("expired", verified(), "certificate has expired", "renew"),
    ("good", verified("stranger.pem"), "certificate is not trusted", "tls.ca"),
    ("good", verified(""), "certificate is not trusted", "tls.ca"),
    ("good", verified("absent.pem"), "authority's certificate cannot be read", "tls.ca"),
    ("good", lambda c, _: c.model_copy(update={"tls": Tls.resolved(mode="disable")}), "asks for TLS", "tls.mode"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("shown", "change", "cause", "step"), TLS, ids=[f"{t[0]} {t[2]}" for t in TLS])
def test_tls(table: Database, certificates: Path, shown: str, change: Change, cause: str, step: str) -> None:
    files = {"client_tls_cert_file": f"{shown}.pem", "client_tls_key_file": f"{shown}.key"}
    with pooled(table, certificates, client_tls_sslmode="require", **files) as way:
        config = change(way, certificates)
        if not cause:
            assert PostgresSource(config).fingerprint()
            assert check(config, "tls")[:2] == (
                True, f"encrypted; the server's certificate is {'' if 'verify' in config.tls.chosen else 'not '}checked"
            )  # fmt: skip
            return
        for through in (PostgresSource(config).fingerprint, PostgresReader(config, ()).open().__enter__):
            with pytest.raises(ConnectError, match=cause) as told:
                through()
            assert step in told.value.hint
            assert config.place in told.value.message


@pytest.mark.slow
def test_a_pooler_that_asks_for_the_password_itself(
    table: Database, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that asks PAM or LDAP does. On another machine it is told over TLS alone."""
    files = {"client_tls_cert_file": "good.pem", "client_tls_key_file": "good.key"}
    with pooled(table, auth_type="plain") as bare:
        assert PostgresSource(bare.model_copy(update={"tls": Tls.resolved(mode="disable")})).fingerprint()
        monkeypatch.setattr("instep.stage.timeouts.is_near", lambda _: False)
        for mode in ("disable", "prefer"):
            with pytest.raises(ConnectError, match="the password itself over a connection without TLS") as told:
                PostgresSource(bare.model_copy(update={"tls": Tls.resolved(mode=mode)})).fingerprint()
            assert "set tls.mode to require" in told.value.hint
    with pooled(table, certificates, auth_type="plain", client_tls_sslmode="allow", **files) as way:
        assert rows(way) == 1000
        with pytest.raises(ConnectError, match="wrong user or password"):
            PostgresSource(way.model_copy(update={"password": "other"})).fingerprint()


@pytest.mark.slow
def test_a_client_s_certificate_is_shown_and_its_key_on_no_disk(table: Database, certificates: Path) -> None:
    files = {
        "client_tls_cert_file": "good.pem", "client_tls_key_file": "good.key", "client_tls_ca_file": "ca.pem",
    }  # fmt: skip
    key = (certificates / "client.key").read_text()
    with pooled(table, certificates, client_tls_sslmode="verify-full", **files) as way:
        bare = way.model_copy(update={"tls": Tls.resolved(mode="require")})
        shows = {"cert": str(certificates / "client.pem"), "key": key}
        config = bare.model_copy(update={"tls": Tls.resolved(mode="require", **shows)})
        assert rows(config) == 1000
        with pytest.raises(ConnectError):
            PostgresSource(bare).discover()
        tls = Tls.resolved(mode="verify-ca", ca=str(certificates / "ca.pem"), **shows)
        checked = config.model_copy(update={"tls": tls})
        carried = pickle.loads(pickle.dumps(checked))
        assert carried.tls.ca.startswith("-----BEGIN"), "tasks may run where the file is not"
        assert carried.tls.cert.startswith("-----BEGIN")
        assert rows(carried) == 1000
    assert key not in repr(config)


def test_the_first_replica_that_answers_is_read(table: Database) -> None:
    with pooled(table) as replica:
        config = table.config.model_copy(
            update={"read_replica": (f"127.0.0.1:{free_port()}", f"127.0.0.1:{replica.port}")}
        )
        with PostgresSource(config).snapshot() as snapshot:
            assert (snapshot.reader.config.port, snapshot.note) == (replica.port, "")
        assert rows(config) == 1000
        assert not check(config, "reachable")[0]
    with PostgresSource(config).snapshot() as snapshot:
        assert snapshot.reader.config.port == table.config.port
        assert "no read replica can be reached" in snapshot.note
