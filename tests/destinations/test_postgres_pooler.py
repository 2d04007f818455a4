"""Through a real PgBouncer that gives each transaction another session, and with TLS by real certificates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres_world import Warehouse, config_of

from certificates import make_certificates
from instep.destinations.base import Merge
from instep.destinations.postgres.destination import PostgresDestination
from instep.errors import ConnectError
from instep.schema.changes.kinds import ColumnRemoved
from instep.schema.planning.step import RewriteColumn
from lake import ORDERS, REF, column, stage
from pooler import pooled
from postgres_server import Database

pytestmark = pytest.mark.slow
NAME = ORDERS.columns[1]


def test_a_pooler_makes_no_difference(postgres: Database, tmp_path: Path) -> None:
    shop = Warehouse(postgres, tmp_path)
    with pooled(postgres, default_pool_size="3", min_pool_size="0") as way:
        shop.to = PostgresDestination(config_of(postgres, tmp_path, port=way.port))
        shop.append({"id": 1, "name": "1"}, {"id": 2, "name": "2"})
        shop.merge({"id": 2, "name": "22"}, {"id": 3, "name": "3"})
        other = replace(ORDERS, columns=(ORDERS.columns[0], column("name", "int32"), *ORDERS.columns[2:]))
        shop.change(other, RewriteColumn(REF, NAME, other.columns[1]))
        assert shop.rows("id", "name") == [(1, 1), (2, 22), (3, 3)]
        shop.overwrite({"id": 1, "name": 5})
        less = replace(other, columns=tuple(c for c in other.columns if c.name != "name"))
        shop.change(less, ColumnRemoved(REF, other.columns[1], 1))
        assert shop.rows("id") == [(1,)]
        assert [c.ok for c in shop.to.lifecycle.test()] == [True] * 6
        met = shop.to.write.lookup_rows(REF, shop.to.write.read(REF, ["id"]).read_all())
        assert met.numbers == [0]
        assert (
            shop.to.write.merge(None, REF, [stage(shop.to, REF, [{"id": 1}])], Merge(("id",)), shop.commit()).updated
            == 0
        )


TLS: list[tuple[str, str, dict[str, str], str]] = [
    ("checked", "good", {"mode": "verify-full", "ca": "ca.pem"}, ""),
    ("of another host", "other", {"mode": "verify-full", "ca": "ca.pem"}, "does not match host"),
    ("expired", "expired", {"mode": "verify-ca", "ca": "ca.pem"}, "certificate verify failed"),
    ("of a stranger", "good", {"mode": "verify-ca", "ca": "stranger.pem"}, "certificate verify failed"),
    ("of an authority that nobody knows", "good", {"mode": "verify-full"}, "certificate verify failed"),
]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    return folder


@pytest.mark.parametrize(("shown", "how", "told"), [c[1:] for c in TLS], ids=[c[0] for c in TLS])
def test_certificates_are_checked(
    postgres: Database, tmp_path: Path, certificates: Path, shown: str, how: dict[str, str], told: str
) -> None:
    own: dict[str, Any] = {k: str(certificates / v) if k == "ca" else v for k, v in how.items()}
    files = {"client_tls_cert_file": f"{shown}.pem", "client_tls_key_file": f"{shown}.key"}
    with pooled(postgres, certificates, client_tls_sslmode="require", **files) as way:
        to = PostgresDestination(config_of(postgres, tmp_path, port=way.port, tls=own))
        if told:
            with pytest.raises(ConnectError, match=told) as caught:
                to.schema.tables()
            assert "tls" in caught.value.hint
        else:
            assert to.schema.tables() == []


def test_a_pooler_that_asks_for_the_password_itself_is_told_it_over_tls(
    postgres: Database, tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.stage.timeouts.is_near", lambda _: False)
    files = {"client_tls_cert_file": "good.pem", "client_tls_key_file": "good.key"}
    with pooled(postgres, certificates, auth_type="plain", client_tls_sslmode="allow", **files) as way:
        shop = Warehouse(postgres, tmp_path)
        shop.to = PostgresDestination(config_of(postgres, tmp_path, port=way.port))
        shop.append({"id": 1, "name": "1"})
        assert shop.rows("id") == [(1,)]


def test_a_client_s_certificate_is_shown(postgres: Database, tmp_path: Path, certificates: Path) -> None:
    settings = {
        "client_tls_sslmode": "verify-full", "client_tls_cert_file": "good.pem", "client_tls_key_file": "good.key",
        "client_tls_ca_file": "ca.pem",
    }  # fmt: skip
    with pooled(postgres, certificates, **settings) as way:
        bare = config_of(postgres, tmp_path, port=way.port, tls={"mode": "require"})
        with pytest.raises(ConnectError):
            PostgresDestination(bare).schema.tables()
        key = certificates.joinpath("client.key").read_text()
        tls = {"mode": "require", "cert": str(certificates / "client.pem"), "key": key}
        sure = config_of(postgres, tmp_path, port=way.port, tls=tls)
        to = PostgresDestination(sure)
        assert to.schema.tables() == []
        assert [c.ok for c in to.lifecycle.test()] == [True] * 6
        assert key not in repr(sure)
