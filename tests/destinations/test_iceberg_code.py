"""Code that a catalog, a table or a catalog's server names is not loaded, and files of this machine are not opened."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import ValidationError

from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.destinations.iceberg.metadata.sqlite_catalog import SqliteCatalog
from instep.destinations.iceberg.metadata.stand_in import stand_in_of, without_code
from instep.destinations.iceberg.metadata.updates import set_properties
from instep.errors import DestinationError, StageError
from instep.spark.jars import S3_IO
from instep.stage.files.place import StorageFolder, children, keep_only, remove
from instep.stage.files.pyiceberg_code import confined, open_catalog
from lake import REF, create

POPEN = {"py-io-impl": "subprocess.Popen"}
NAMED = [
    POPEN, {"write.py-location-provider.impl": "subprocess.Popen"}, {"py-io-impl": "no.such.Module"},
]  # fmt: skip


@pytest.mark.parametrize("named", NAMED, ids=str)
def test_a_table_that_names_code(tmp_path: Path, named: Mapping[str, str]) -> None:
    """Whoever else writes to the lake may have set it."""
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake)
    found = lake.lake.load(REF)
    assert found is not None
    with suppress(DestinationError):
        found.catalog.commit_table(found, (), (set_properties(named),))
    with pytest.raises(DestinationError, match="names code"):
        touch(IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake"))), named)


def touch(destination: IcebergDestination, named: Mapping[str, str]) -> None:
    found = destination.lake.load(REF)
    assert found is not None
    found.catalog.commit_table(found, (), (set_properties({**named, "a": "b"}),))


def test_a_catalog_that_names_code() -> None:
    with pytest.raises(DestinationError, match="names code"):
        open_catalog("lake", {"py-catalog-impl": "subprocess.Popen"}, local_files=True)


def test_a_bucket_whose_retries_are_code() -> None:
    place = StorageFolder("s3://b/x", {"s3.retry-strategy-impl": "subprocess.Popen", "s3.region": "eu"})
    with pytest.raises(DestinationError, match="names code"):
        place.resolve("x")


@contextmanager
def catalog_server(overrides: Mapping[str, str], table: Mapping[str, Any]) -> Iterator[str]:
    """A REST catalog that says what it likes of its only table."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said: Any = {"defaults": {}, "overrides": overrides} if self.path.startswith("/v1/config") else table
            body = json.dumps(said).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def answer(tmp_path: Path) -> dict[str, Any]:
    """What a catalog's server says of a table: the metadata of one in a folder."""
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake)
    found = lake.lake.load(REF)
    assert found is not None
    metadata = json.loads(found.metadata.model_dump_json())
    return {"metadata-location": found.metadata_location, "metadata": metadata, "config": {}}


@pytest.mark.parametrize("where", ["server", "table"])
def test_a_server_that_names_code(answer: dict[str, Any], where: str) -> None:
    overrides = POPEN if where == "server" else {}
    config = POPEN if where == "table" else {}
    with catalog_server(overrides, {**answer, "config": config}) as uri:
        lake = IcebergDestination(
            IcebergConfig.resolved(name="lake", warehouse="s3://b/x", catalog="rest", properties={"uri": uri})
        )
        with pytest.raises(DestinationError, match="names code"):
            lake.lake.load(REF)


HOSTS = {
    "gcs.service.host": "https://evil.example", "adls.account-host": "evil.example", "s3.proxy-uri": "http://evil.example",
    "adls.blob-storage-authority": "evil.example", "adls.dfs-storage-authority": "evil.example",
    "adls.blob-storage-scheme": "http", "adls.dfs-storage-scheme": "http",
}  # fmt: skip


@pytest.mark.parametrize("local_files", [True, False])
@pytest.mark.parametrize("where", ["server", "answer", "table"])
def test_a_login_goes_to_no_host_that_a_server_or_a_table_names(
    answer: dict[str, Any], where: str, local_files: bool
) -> None:
    metadata = {**answer["metadata"], "location": "s3://b/x/t"}
    place = {"metadata-location": "s3://b/x/t/metadata/1.json"}

    def loaded(host: Mapping[str, str], own: Mapping[str, str]) -> Any:
        table = {**answer, **place, "config": host if where == "answer" else {}}
        table["metadata"] = {**metadata, "properties": host if where == "table" else {}}
        with catalog_server(host if where == "server" else {}, table) as uri:
            config = IcebergConfig.resolved(
                name="lake",
                warehouse="s3://b/x",
                catalog="rest",
                properties={**own, "uri": uri},
                local_files=local_files,
            )
            return IcebergDestination(config).lake.load(REF)

    for name, host in HOSTS.items():
        for own in ({}, {name: "another.example"}):
            with pytest.raises(DestinationError, match=f"sets {name} to '{host}': a login would go there"):
                loaded({name: host}, own)
        assert loaded({name: host}, {name: host}) is not None
    assert loaded({"s3.endpoint": "http://127.0.0.1:1", "s3.region": "eu"}, {}) is not None


def test_spark_opens_no_rest_catalog_that_an_api_has_set() -> None:
    """Iceberg's own code for Java takes classes, files and hosts from what its server answers. For the files of such a
    catalog in S3 a session has the jar."""
    for catalog, local_files, is_for_spark in (("rest", False, False), ("rest", True, True), ("glue", False, True)):
        config = IcebergConfig.resolved(
            name="lake", warehouse="s3://b/x", catalog=catalog, properties={}, local_files=local_files
        )
        lake = IcebergDestination(config)
        assert lake.lake.is_for_spark is is_for_spark
        conf = lake.lifecycle.spark_catalog()
        assert ("spark.sql.catalog.lake" in conf) is is_for_spark
        assert conf["spark.sql.catalog.lake.io-impl"] == S3_IO
        assert (lake.lifecycle.spark_table(REF) is not None) is is_for_spark


@pytest.mark.parametrize("place", ["gs://b/x", "abfss://c@account.dfs.core.windows.net/x"])
def test_a_store_that_spark_opens_by_hadoop_is_not_opened_for_a_server(answer: dict[str, Any], place: str) -> None:
    table = {**answer, "metadata": {**answer["metadata"], "location": place}, "metadata-location": f"{place}/m.json"}
    with catalog_server({}, table) as uri:
        config = IcebergConfig.resolved(
            name="lake", warehouse=place, catalog="rest", properties={"uri": uri}, local_files=False
        )
        lake = IcebergDestination(config).lake
        found = lake.load(REF)
        assert found is not None
        with (
            pytest.raises(DestinationError, match="Spark does not open this store"),
            stand_in_of(lake, {REF: found}, ""),
        ):
            pass


def test_a_stand_in_has_no_property_that_names_code() -> None:
    named = {"write.location-provider.impl": "a.B", "write.py-location-provider.impl": "a.B", "write.format": "x"}
    assert without_code({**named, "instep.state": "{}"}) == {"write.format": "x"}


def test_a_login_that_names_code_is_no_property() -> None:
    login = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["true"]}}
    with pytest.raises(ValidationError, match=r"properties\.auth"):
        IcebergConfig.resolved(name="lake", warehouse="s3://b/x", catalog="rest", properties={"auth": login})


@pytest.mark.parametrize("overrides", [{}, {"instep.local-files": "true"}])
def test_a_server_that_leads_to_this_machine(answer: dict[str, Any], overrides: dict[str, str]) -> None:
    local = {**answer, "config": overrides}
    with catalog_server(overrides, local) as uri:
        config = IcebergConfig.resolved(
            name="lake", warehouse="s3://b/x", catalog="rest", properties={"uri": uri}, local_files=False
        )
        lake = IcebergDestination(config).lake
        folder = Path(answer["metadata"]["location"].removeprefix("file://"))
        for act in (lake.load, lake.drop_table):
            with pytest.raises(DestinationError, match="from an API"):
                act(REF)
        assert folder.is_dir()
        trusted = IcebergDestination(
            IcebergConfig.resolved(name="lake", warehouse="s3://b/x", catalog="rest", properties={"uri": uri})
        ).lake.load(REF)
        assert trusted is not None
        assert trusted.io.new_input(answer["metadata-location"]).exists()


def test_a_server_that_places_a_dropped_table_in_a_folder_of_others(answer: dict[str, Any], tmp_path: Path) -> None:
    """Also a catalog that instep.yml names is another's: what it says of a place deletes nothing there."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "letter.txt").write_text("x")
    answer["metadata"]["location"] = own.as_uri()
    with catalog_server({}, answer) as uri:
        config = IcebergConfig.resolved(name="lake", warehouse="s3://b/x", catalog="rest", properties={"uri": uri})
        IcebergDestination(config).lake.drop_table(REF)
    assert (own / "letter.txt").exists()


def test_a_dropped_table_takes_its_own_folder_along_and_no_other(tmp_path: Path) -> None:
    lake = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(tmp_path / "lake")))
    create(lake)
    found = lake.lake.load(REF)
    assert found is not None
    folder = Path(found.location().removeprefix("file://"))
    (tmp_path / "own" / "deep").mkdir(parents=True)
    (folder.parent / "link").symlink_to(tmp_path / "own", target_is_directory=True)
    for place in ("own", "own/deep", "lake", f"lake/{REF[0]}", "lake/x/../../own", f"lake/{REF[0]}/link/deep", ".", ""):
        lake.lake.remove_folder(f"file://{tmp_path}/{place}")
    lake.lake.remove_folder("file:/")
    assert (tmp_path / "own" / "deep").is_dir()
    assert folder.is_dir()
    lake.lake.drop_table(REF)
    assert not folder.exists()


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_a_table_in_a_bucket_whose_files_are_said_to_be_here(answer: dict[str, Any], tmp_path: Path, name: str) -> None:
    answer["metadata"] |= {"location": "s3://b/x/t", "properties": {name: tmp_path.as_uri()}}
    answer["metadata-location"] = "s3://b/x/t/metadata/1.json"
    with catalog_server({}, answer) as uri:
        config = IcebergConfig.resolved(
            name="lake", warehouse="s3://b/x", catalog="rest", properties={"uri": uri}, local_files=False
        )
        with pytest.raises(DestinationError, match="from an API"):
            IcebergDestination(config).lake.load(REF)
        answer["metadata"]["properties"] = {}
        found = IcebergDestination(config).lake.load(REF)
        assert found is not None
        with pytest.raises(DestinationError, match="from an API"):
            found.io.new_input("/etc/passwd").open()
        with pytest.raises(DestinationError, match="from an API"):
            found.io.new_output(f"{tmp_path.as_uri()}/data/x").create()


def test_a_place_of_a_lake_that_an_api_named_is_not_here(tmp_path: Path) -> None:
    """Whatever writes, lists or deletes files by itself: `data` of a table is removed, staged files are written."""
    io = IcebergDestination(
        IcebergConfig.resolved(name="lake", warehouse="s3://b/x", catalog="rest", properties={}, local_files=False)
    ).lake.io()
    (tmp_path / "kept").mkdir()
    for uri in (tmp_path.as_uri(), str(tmp_path), "kept"):
        acts = [lambda at: StorageFolder(at, io).create("x"),
            lambda at: StorageFolder(at, io).resolve(""), lambda at: remove(at, io),
                lambda at: children(at, io), lambda at: keep_only(at, io, ["x"])]  # fmt: skip
        for act in acts:
            with pytest.raises(StageError, match="from an API"):
                act(uri)
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


def test_a_bucket_under_a_catalog_in_a_file_is_confined_too(tmp_path: Path) -> None:
    """Whoever has the bucket writes what its tables are described by."""
    file = tmp_path / "m.json"
    file.write_text("{}")
    kept = {"uri": f"sqlite:///{tmp_path / 'c.db'}", "warehouse": "s3://b/x", "instep.local-files": "false"}
    catalog = confined(SqliteCatalog("lake", **kept))
    catalog.create_namespace("shop")
    with closing(sqlite3.connect(tmp_path / "c.db")) as database, database:
        row = ("lake", "shop", "t", file.as_uri())
        names = "catalog_name, table_namespace, table_name, metadata_location"
        database.execute(f"INSERT INTO iceberg_tables ({names}) VALUES (?, ?, ?, ?)", row)  # noqa: S608
    with pytest.raises(DestinationError, match="from an API"):
        catalog.load_table(("shop", "t"))
