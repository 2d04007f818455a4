"""TLS of MySQL sources against a real MariaDB with real certificates, which it changes while it runs."""

from __future__ import annotations

import pickle
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from certificates import make_certificates
from instep.errors import ConnectError
from instep.model import LogNames
from instep.project.sections.databases import MySqlSourceSection
from instep.project.sections.reach import Tls, TlsMode
from instep.sources.mysql.source import MySqlSource
from mariadb import MariaServer, launch, open_as


@dataclass
class Shown:
    """A server whose certificate `show` replaces."""

    server: MariaServer
    folder: Path

    def show(self, name: str) -> MySqlSourceSection:
        for ending in ("pem", "key"):
            shutil.copy(self.folder / f"{name}.{ending}", self.folder / f"server.{ending}")
        with open_as(self.server.admin) as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH SSL")
        return self.server.admin

    def authority(self, name: str) -> str:
        return str(self.folder / name) if name else ""


@pytest.fixture(scope="module")
def shown() -> Iterator[Shown]:
    folder = Path(tempfile.mkdtemp(prefix="instep-maria-tls-"))
    make_certificates(folder)
    for ending in ("pem", "key"):
        shutil.copy(folder / f"good.{ending}", folder / f"server.{ending}")
    files = [
        f"--ssl-{word}={folder / name}"
        for word, name in (("cert", "server.pem"), ("key", "server.key"), ("ca", "ca.pem"))
    ]
    server = launch(folder / "server", *files)
    try:
        yield Shown(server, folder)
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


TLS: list[tuple[str, TlsMode, str, str, str]] = [
    ("good", "prefer", "", "", ""),
    ("good", "require", "", "", ""),
    ("good", "verify-full", "ca.pem", "", ""),
    ("other", "verify-ca", "ca.pem", "", ""),
    ("other", "verify-full", "ca.pem", "certificate is for another host", "verify-ca"),
    ("expired", "verify-full", "ca.pem", "certificate has expired", "renew"),
    ("good", "verify-full", "stranger.pem", "certificate is not trusted", "tls.ca"),
    ("good", "verify-full", "", "certificate is not trusted", "tls.ca"),
]


@pytest.mark.slow
def test_certificates_go_along_to_other_machines(shown: Shown, tmp_path: Path) -> None:
    """Tasks get the configuration pickled, and may run where its files are not."""
    shutil.copy(shown.folder / "ca.pem", tmp_path / "ca.pem")
    tls = Tls(mode="verify-full", ca=str(tmp_path / "ca.pem"))
    here = shown.show("good").model_copy(update={"tls": tls})
    there: MySqlSourceSection = pickle.loads(pickle.dumps(here))
    (tmp_path / "ca.pem").unlink()
    assert MySqlSource(there).fingerprint()
    with pytest.raises(ConnectError):
        MySqlSource(here).fingerprint()
    assert pickle.loads(pickle.dumps(there)) == there
    assert pickle.loads(pickle.dumps(here)).tls.ca == here.tls.ca, "what is not there is missed where it is needed"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode", "ca", "cause", "step"), TLS, ids=[f"{t[0]} {t[1]} {t[2]}" for t in TLS])
def test_tls(shown: Shown, name: str, mode: TlsMode, ca: str, cause: str, step: str) -> None:
    config = shown.show(name).model_copy(update={"tls": Tls(mode=mode, ca=shown.authority(ca))})
    if cause:
        with pytest.raises(ConnectError, match=cause) as told:
            MySqlSource(config).discover()
        assert step in told.value.hint
        assert config.place in told.value.message
        return
    found = next(c for c in MySqlSource(config).test() if c.name == "tls")
    checked = "is" if "verify" in mode else "is not"
    assert (found.ok, found.detail) == (True, f"encrypted; the server's certificate {checked} checked")


def test_an_authority_s_file_that_is_not_there(tmp_path: Path) -> None:
    config = MySqlSourceSection.resolved(
        type="mysql",
        host="127.0.0.1",
        database="shop",
        user="u",
        tls={"mode": "verify-ca", "ca": str(tmp_path / "none.pem")},
    )
    (failed,) = [c for c in MySqlSource(config).test() if not c.ok]
    assert "tls.ca or tls.cert: [Errno 2]" in failed.detail


@pytest.mark.slow
def test_a_client_s_certificate_is_asked_for(shown: Shown) -> None:
    admin = shown.show("good")
    with open_as(admin) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE OR REPLACE USER sure@'%' IDENTIFIED BY 'x' REQUIRE X509")
        cursor.execute("GRANT ALL ON *.* TO sure@'%'")
    key = (shown.folder / "client.key").read_text()
    bare = admin.model_copy(update={"user": "sure", "password": "x", "tls": Tls.resolved(mode="require")})
    config = bare.model_copy(
        update={"tls": Tls.resolved(mode="require", cert=str(shown.folder / "client.pem"), key=key)}
    )
    assert MySqlSource(config).fingerprint()
    assert MySqlSource(config).log(LogNames("", "")).state().exists
    assert key not in repr(config)
    with pytest.raises(ConnectError, match="refuses this user"):
        MySqlSource(bare).fingerprint()
