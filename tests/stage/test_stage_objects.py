"""Paths in object stores: what they are called, what is there, and who may make it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.errors import ConnectError
from instep.stage.files.buckets import account_of, azure_filesystem
from instep.stage.files.object_store import ObjectPath, files_below, is_object, opened, path_at
from s3_server import SECRET, Bucket, each_bucket

bucket = each_bucket

# uri -> name, parent, key
PATHS = [
    ("s3://b", "b", "s3:/", ""),
    ("s3://b/", "b", "s3:/", ""),
    ("s3://b/x", "x", "s3://b", "x"),
    ("s3://b/x/y z/", "y z", "s3://b/x", "x/y z"),
    ("s3a://b/x%20/ü", "ü", "s3a://b/x%20", "x%20/ü"),
]


@pytest.mark.parametrize(("uri", "name", "parent", "key"), PATHS)
def test_names(uri: str, name: str, parent: str, key: str) -> None:
    path = ObjectPath(uri)
    assert (path.name, str(path.parent), path.key) == (name, parent, key)


# uri -> whether it is one in an object store
URIS = [
    ("s3://b/x", True), ("s3a://b", True), ("gs://b/x", True), ("abfs://c/x", True), ("abfss://c@acc.dfs.x/x", True),
    ("s3", False), ("http://b/x", False), ("wasb://b/x", False), ("/s3://x", False), ("", False),
]  # fmt: skip


@pytest.mark.parametrize(("uri", "expected"), URIS)
def test_which_uris_are_in_object_stores(uri: str, expected: bool) -> None:
    assert is_object(uri) == expected
    assert isinstance(path_at(uri, {}), ObjectPath) == expected


# the first part of the URI, adls.account-name -> container and account, or what is wrong
ACCOUNTS = [
    ("box@shop.dfs.core.windows.net", "", ("box", "shop")),
    ("box@shop.blob.core.windows.net", "shop", ("box", "shop")),
    ("box", "shop", ("box", "shop")),
    ("box", "", "names no storage account"),
    ("box@shop.dfs.core.windows.net", "other", "names the account shop, and adls.account-name other"),
    ("box@shop.dfs.core.windows.net.evil.example", "", "is not the host of an Azure storage account"),
    ("box@127.0.0.1:80", "shop", "is not the host of an Azure storage account"),
    ("box@evil.example#.dfs.core.windows.net", "", "is not the host of an Azure storage account"),
    ("box@a/b.dfs.core.windows.net", "", "is not the host of an Azure storage account"),
]


@pytest.mark.parametrize(("first", "account", "expected"), ACCOUNTS)
def test_which_account_is_reached(first: str, account: str, expected: tuple[str, str] | str) -> None:
    """Keys are sent to it: no URI leads them to another host."""
    io = {"adls.account-name": account} if account else {}
    if isinstance(expected, tuple):
        assert account_of(first, io) == expected
        return
    for reach in (account_of, azure_filesystem):
        with pytest.raises(ConnectError, match=expected):
            reach(first, io)


@pytest.mark.parametrize("name", ["connection-string", "token", "anon", "account-host"])
def test_a_login_that_would_not_be_used_is_refused(name: str) -> None:
    io = {"adls.account-name": "shop", f"adls.{name}": "x"}
    for reach in (ObjectPath("abfs://box/x", io).exists, ObjectPath("abfs://box/x", io).open):
        with pytest.raises(ConnectError, match=f"adls.{name} is not read"):
            reach()


def test_what_is_shown_and_sent() -> None:
    path = ObjectPath("s3://b/x", {"s3.secret-access-key": SECRET})
    assert SECRET not in f"{path} {path!r}"
    assert pickle.loads(pickle.dumps(path)).io == path.io
    assert path == ObjectPath("s3://b/x")


@given(st.lists(st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_what_is_below(parts: list[str]) -> None:
    root = path = ObjectPath("s3://bucket/root")
    for part in parts:
        path = path / part
    assert path.is_relative_to(root)
    assert str(path.relative_to(str(root))) == "/".join(parts) or "." in parts
    assert not path.is_relative_to(ObjectPath("s3://bucket/roo"))
    with pytest.raises(ValueError, match="is not below"):
        root.relative_to(path)


ODD = ["plain", "with space", "100%", "%41", "ü/é", "a+b=c@d~e", "q?x#y"]


def test_objects_of_any_name_are_written_read_listed_and_deleted(bucket: Bucket) -> None:
    root = ObjectPath(f"{bucket.uri}/some where", bucket.io)
    assert not root.is_dir()
    for name in ODD:
        (root / name).write_bytes(name.encode())
    assert {str(p): s.st_size for p, s in files_below(root)} == {str(root / n): len(n.encode()) for n in ODD}
    for name in ODD:
        path = root / name
        assert path.read_text() == opened(path).read().decode() == name
        assert path.exists()
        assert path.stat().st_mtime > 1_700_000_000
    assert [p.name for p in root.folders()] == ["ü"]
    assert sorted(root.names()) == sorted(n for n in ODD if "/" not in n)
    (root / "plain").copy_to(root / "copy")
    assert (root / "copy").read_bytes() == b"plain"
    for path, _ in list(files_below(root)):
        path.unlink()
    assert bucket.names() == []


def test_what_is_not_there(bucket: Bucket) -> None:
    path = ObjectPath(f"{bucket.uri}/nothing", bucket.io)
    for ask in (path.read_bytes, lambda: path.read_once(""), path.stat, path.open):
        with pytest.raises(FileNotFoundError):
            ask()
    assert not path.exists()
    path.unlink(missing_ok=True)
    assert list(files_below(path)) == []
    (path / "folder").write_bytes(b"")
    assert list(files_below(path)) == []
    assert path.is_dir()
    with pytest.raises(ConnectError, match="there is no such bucket"):
        ObjectPath(f"{bucket.missing}/x", bucket.io).create(b"")


def test_an_object_is_asked_for_once_until_another_takes_its_place(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ObjectPath(f"{bucket.uri}/log/1.json", bucket.io)
    reads, read = list[bytes](), ObjectPath.read_bytes
    monkeypatch.setattr(ObjectPath, "read_bytes", lambda self: reads.append(read(self)) or reads[-1])
    for content in (b"1", b"2"):
        path.write_bytes(content)
        [(_, mark)] = path.parent.names_from("")
        assert (path.read_once(mark), path.read_once(mark)) == (content, content)
    assert reads == [b"1", b"2"]


def test_files_of_a_disk(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"12")
    assert [(p, s.st_size) for p, s in files_below(tmp_path)] == [(tmp_path / "a" / "x", 2)]
    assert opened(tmp_path) == tmp_path
    assert path_at((tmp_path / "a b%").as_uri(), {}) == tmp_path / "a b%"
