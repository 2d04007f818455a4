"""A real Azure blob server (Azurite) on a loopback port, one per test session; a container for each test."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from programs import PROGRAMS
from s3_server import Bucket

_SERVER = PROGRAMS / "azure" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
_OPTIONS = ("--blobPort", "0", "--silent", "--skipApiVersionCheck", "--inMemoryPersistence")
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The server's own, which its documentation gives."""


@dataclass(frozen=True)
class Container(Bucket):
    """A container under its account's host; `endpoint` is the server's host and port."""

    @property
    def uri(self) -> str:
        container, slash, folder = self.name.partition("/")
        return f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net{slash}{folder}"

    @property
    def io(self) -> Mapping[str, str]:
        here = {f"adls.{api}-storage-authority": self.endpoint for api in ("blob", "dfs")}
        plain = {f"adls.{api}-storage-scheme": "http" for api in ("blob", "dfs")}
        return {"adls.account-key": KEY} | here | plain

    @property
    def secret(self) -> str:
        return KEY

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "azure_storage_account_key": KEY, "azure_allow_http": "true",
            "azure_storage_endpoint": f"http://{self.endpoint}/{ACCOUNT}",
        }  # fmt: skip

    @property
    def unreachable(self) -> Bucket:
        return replace(self, endpoint="127.0.0.1:1")

    @property
    def filesystem(self) -> Any:
        from pyarrow.fs import AzureFileSystem

        return AzureFileSystem(
            ACCOUNT, account_key=KEY, blob_storage_authority=self.endpoint, dfs_storage_authority=self.endpoint,
            blob_storage_scheme="http", dfs_storage_scheme="http",
        )  # fmt: skip

    def make(self) -> None:
        self.filesystem.create_dir(self.name)


@contextmanager
def serving_azure(log: Path) -> Iterator[str]:
    """The server's host and port while it runs."""
    node = shutil.which("node")
    if node is None or not _SERVER.exists():
        reason = "no Azure server is there: run scripts/setup_test.sh (it takes npm)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with log.open("wb") as said:
        child = subprocess.Popen([node, _SERVER, *_OPTIONS], stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        yield _listening(child, log)
    finally:
        child.kill()
        child.wait()


def _listening(child: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + 120
    while time.monotonic() < until and child.poll() is None:
        if found := re.search(r"listens on http://(127\.0\.0\.1:\d+)", log.read_text()):
            return found[1]
        time.sleep(0.1)
    raise AssertionError(log.read_text()[-2000:])


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_azure(tmp_path_factory.mktemp("azure") / "log") as address:
        yield address
