"""A real S3 server (moto) on a loopback port, one per test session; a bucket for each test."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from programs import PROGRAMS

_PYTHON = PROGRAMS / "s3" / "bin" / "python"
_MAIN = Path(__file__).parents[1] / "scripts" / "s3_server.py"
_numbers = itertools.count(1)
SECRET = "wJalrXUtnFEMIcanary"


@dataclass(frozen=True)
class Bucket:
    """A bucket of an S3-compatible store. `io` are the properties that reach it."""

    name: str
    endpoint: str

    @property
    def uri(self) -> str:
        return f"s3://{self.name}"

    @property
    def io(self) -> Mapping[str, str]:
        return {
            "s3.endpoint": self.endpoint, "s3.access-key-id": "AKIACANARY", "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }  # fmt: skip

    @property
    def filesystem(self) -> Any:
        from pyarrow.fs import S3FileSystem

        host = self.endpoint.removeprefix("http://")
        return S3FileSystem(
            access_key="AKIACANARY", secret_key=SECRET, endpoint_override=host, scheme="http", region="us-east-1"
        )

    @property
    def secret(self) -> str:
        """What may appear nowhere."""
        return SECRET

    @property
    def options(self) -> Mapping[str, str]:
        """What delta-rs is told of it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIACANARY", "AWS_SECRET_ACCESS_KEY": SECRET,
        }  # fmt: skip

    @property
    def unreachable(self) -> Bucket:
        """The same at a port where nothing listens."""
        return replace(self, endpoint="http://127.0.0.1:1")

    @property
    def missing(self) -> str:
        """The URI of a bucket that is not there."""
        return replace(self, name="no-such-bucket").uri

    def make(self) -> None:
        urlopen(Request(f"{self.endpoint}/{self.name}", method="PUT"), timeout=30).close()

    def names(self, below: str = "") -> list[str]:
        """Every object's key below a prefix, in order."""
        from pyarrow.fs import FileSelector, FileType

        found = self.filesystem.get_file_info(
            FileSelector(f"{self.name}/{below}".rstrip("/"), recursive=True, allow_not_found=True)
        )
        return sorted(i.path.removeprefix(f"{self.name}/") for i in found if i.type == FileType.File)

    def read(self, name: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.name}/{name}") as file:
            return bytes(file.read())

    def put(self, name: str, content: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.name}/{name}") as file:
            file.write(content)


@contextmanager
def serving_s3(log: Path) -> Iterator[str]:
    """The server's URL while it runs."""
    if not _PYTHON.exists():
        reason = "no S3 server is there: run scripts/setup_test.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with log.open("ab") as said:
        child = subprocess.Popen([_PYTHON, _MAIN], stdout=subprocess.PIPE, stderr=said, stdin=subprocess.DEVNULL)
    assert child.stdout is not None
    try:
        port = child.stdout.readline().decode().strip()
        assert port, log.read_text()[-2000:]
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving_s3(tmp_path_factory.mktemp("s3") / "log") as url:
        yield url


@pytest.fixture
def bucket(s3_server: str) -> Bucket:
    """An empty bucket for this test alone."""
    return new_bucket("s3", s3_server)


@pytest.fixture
def container(azure_server: str) -> Bucket:
    """The same in Azure."""
    return new_bucket("azure", azure_server)


@pytest.fixture(params=["s3", "azure"])
def each_bucket(request: pytest.FixtureRequest) -> Bucket:
    """The same in each store: for a module that tests what all of them have to do, `bucket = each_bucket`."""
    return new_bucket(request.param, request.getfixturevalue(f"{request.param}_server"))


def new_bucket(store: str, server: str) -> Bucket:
    from azure_server import Container

    made = {"s3": Bucket, "azure": Container}[store](f"test-{os.getpid()}-{next(_numbers)}", server)
    made.make()
    return made
