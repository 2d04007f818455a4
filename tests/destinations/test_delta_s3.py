"""Delta tables in object stores, which move no folder: names, drops and writers who meet, by real servers."""

from __future__ import annotations

import http.client
import http.server
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import delta_world
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.crash import Crashed
from instep.destinations.base import Commit, MaintenanceSpec
from instep.destinations.delta.destination import DeltaConfig, DeltaDestination
from instep.destinations.delta.protocol.log import EVERY, DeltaLog
from instep.destinations.delta.table_state import find
from instep.errors import ConnectError, DestinationError, Fenced, StageError
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import TableAdded, TableRemoved, TableRenamed
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import step
from instep.stage.files.object_store import ObjectPath, files_below
from lake import ORDERS, REF, create, rows_of, stage
from s3_server import Bucket, each_bucket, new_bucket

bucket = each_bucket

OTHER = replace(ORDERS, name="sales")
EAGER = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, orphan_age=0, target_file_size=1 << 20)


class Shop(delta_world.Warehouse):
    def __init__(self, bucket: Bucket, wanted: Table = ORDERS, **config: Any) -> None:
        self.to = DeltaDestination(
            DeltaConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=bucket.io, **config)
        )
        self.fence = 0
        create(self.to, wanted, self.commit("make"))

    def rename(self, after: Table = OTHER, fence: int = 0) -> None:
        commit = Commit("rename", fence) if fence else self.commit()
        self.to.schema.execute(REF, [step(REF, TableRenamed(ORDERS, after))], after, commit)

    def drop(self, fence: int = 0) -> None:
        commit = Commit("drop", fence) if fence else self.commit()
        self.to.schema.execute(REF, [step(REF, TableRemoved(ORDERS))], None, commit)


@pytest.fixture
def shop(bucket: Bucket) -> Shop:
    made = Shop(bucket)
    made.append({"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    return made


def test_of_many_writers_of_one_object_one_succeeds(bucket: Bucket) -> None:
    place = ObjectPath(f"{bucket.uri}/log/1.json", bucket.io)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: place.create(b"%d" % n), range(24)))
    assert made.count(True) == 1
    assert place.read_bytes() == b"%d" % made.index(True)
    assert place.create(place.read_bytes()), "an answer that was lost: it is there as it was meant to be"


def test_a_renamed_table_stays_where_it_is(shop: Shop, bucket: Bucket) -> None:
    shop.rename()
    assert shop.to.schema.tables() == [OTHER.ref]
    assert rows_of(shop.to, OTHER.ref, ["id"]) == [(1,), (2,)]
    assert shop.to.write.target(OTHER.ref).location.startswith(f"{bucket.uri}/lake/shop/orders/")
    create(shop.to, replace(ORDERS, id="another"), shop.commit())
    assert shop.to.schema.tables() == [REF, OTHER.ref]
    assert rows_of(shop.to) == []
    assert shop.to.write.target(REF).location == f"{bucket.uri}/lake/shop/orders~2/data"
    shop.to.schema.execute(OTHER.ref, [step(OTHER.ref, TableRemoved(OTHER))], None, Commit("x", shop.fence))
    assert shop.to.schema.tables() == [REF]


def test_a_rename_that_was_cut_off_is_finished(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(log: DeltaLog, version: int, actions: Any) -> bool:
        raise Crashed("here")

    commit = shop.commit()
    with monkeypatch.context() as patched:
        patched.setattr(DeltaLog, "put", dies)
        with pytest.raises(Crashed):
            shop.rename(fence=commit.fence)
    assert shop.to.schema.tables() == [REF]
    assert not shop.to.schema.foreign([OTHER.ref])
    shop.rename(fence=commit.fence)
    assert shop.to.schema.tables() == [OTHER.ref]
    shop.rename(fence=commit.fence)
    assert rows_of(shop.to, OTHER.ref, ["id"]) == [(1,), (2,)]


@pytest.mark.sampled
@pytest.mark.parametrize("late", ["rename", "drop"])
def test_a_late_run_neither_renames_nor_drops(shop: Shop, late: str) -> None:
    old = shop.fence
    shop.commit()
    with pytest.raises(Fenced):
        getattr(shop, late)(fence=old)
    assert shop.to.schema.tables() == [REF]
    assert shop.to.warehouse.waiting() == []


def test_dropped_tables_of_one_name_wait_beside_each_other(shop: Shop) -> None:
    shop.drop()
    assert (shop.to.schema.tables(), shop.to.schema.foreign([REF]), shop.to.schema.inspect([REF]).tables) == (
        [],
        {},
        (),
    )
    other = replace(ORDERS, id="another")
    create(shop.to, other, shop.commit())
    shop.append({"id": 9})
    with pytest.raises(DestinationError, match="another table is now called"):
        shop.to.schema.undrop_table(REF, ORDERS, shop.commit())
    shop.to.schema.execute(REF, [step(REF, TableRemoved(other))], None, shop.commit())
    assert [shop.to.lifecycle.dropped(REF, one) for one in (ORDERS.id, "another", "none")] == [True, True, False]
    shop.to.schema.undrop_table(REF, ORDERS, shop.commit())
    assert rows_of(shop.to, REF, ["id"]) == [(1,), (2,)]
    shop.append({"id": 3})
    assert len(shop.rows()) == 3
    shop.drop()
    shop.to.schema.undrop_table(REF, other, shop.commit())
    assert shop.rows("id") == [(9,)]


@pytest.mark.slow
def test_what_is_over_goes_and_what_was_half_deleted_does_not_come_back(bucket: Bucket) -> None:
    shop = Shop(bucket, undo_days=0)
    shop.append({"id": 1})
    shop.drop()
    [one] = shop.to.warehouse.waiting()
    assert any(path.name.endswith(".parquet") for path, _ in files_below(one.folder))
    assert shop.to.lifecycle.purge_expired([], shop.fence) == ["shop.orders"]
    assert [n for n in bucket.names("lake/shop") if not n.endswith("/")] == []
    assert bucket.names("lake/_instep/dropped") == []
    create(shop.to, ORDERS, shop.commit())
    shop.append({"id": 2})
    assert shop.rows("id") == [(2,)]


@pytest.mark.slow
def test_a_deletion_that_was_cut_off_is_finished(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(bucket, undo_days=0)
    shop.append({"id": 1})
    shop.drop()

    def dies(path: ObjectPath, *, missing_ok: bool = False) -> None:
        raise Crashed("here")

    with monkeypatch.context() as patched:
        patched.setattr(ObjectPath, "unlink", dies)
        with pytest.raises(Crashed):
            shop.to.lifecycle.purge_expired([], shop.fence)
    assert not shop.to.lifecycle.dropped(REF, ORDERS.id)
    create(shop.to, ORDERS, shop.commit())
    assert shop.to.lifecycle.purge_expired([], shop.fence) == []
    assert bucket.names("lake/shop/orders") == []
    assert shop.to.schema.tables() == [REF]


@pytest.mark.slow
def test_a_copy_needs_nothing_of_its_table(shop: Shop, bucket: Bucket) -> None:
    place = ("shop", "kept")
    assert shop.to.lifecycle.clones.clone_table(REF, place, shop.commit()) == 2
    assert shop.to.lifecycle.clones.clone_table(REF, place, shop.commit()) == 2
    shop.overwrite({"id": 7})
    assert rows_of(shop.to, place, ["id"]) == [(1,), (2,)]
    with pytest.raises(DestinationError, match="is not a copy made by instep"):
        shop.to.lifecycle.clones.purge_clone(REF, shop.fence)
    shop.to.lifecycle.clones.purge_clone(place, shop.fence)
    assert bucket.names("lake/shop/kept") == []
    assert shop.to.schema.tables() == [REF]


@pytest.mark.slow
def test_maintenance_and_what_dead_runs_leave(bucket: Bucket) -> None:
    shop = Shop(bucket, undo_days=0)
    while shop.held.snapshot.version < EVERY + 2:
        shop.append({"id": shop.fence})
    rows, lost = shop.rows(), f"lake/shop/orders/data/r-dead-{'0' * 8}.parquet"
    bucket.put(lost, b"x")
    work = MaintenanceSpec(EAGER, "r-maintain", shop.fence, deep=True)
    done = shop.to.maintenance.maintain(REF, work)
    assert (done.files, done.orphans, done.snapshots) == (1, 1, 10)
    assert shop.rows() == rows
    shop.overwrite({"id": 9})
    time.sleep(0.01)
    assert shop.to.maintenance.maintain(REF, replace(work, fence=shop.fence)).removed == done.files_before + 1
    assert shop.rows("id") == [(9,)]
    assert len(shop.files()) == len([n for n in bucket.names("lake/shop/orders/data") if n.endswith(".parquet")])
    bucket.put(lost, b"x")
    shop.to.lifecycle.remove_uncommitted_files(REF, {"r-dead": 1})
    assert lost not in bucket.names()
    (version, *_) = shop.held.log.versions()
    assert version == EVERY


def test_a_table_in_the_place_of_another_is_not_taken_for_it(bucket: Bucket) -> None:
    shop, other = Shop(bucket), Shop(replace(bucket, name=f"{bucket.name}/other"))
    for made, names in ((shop, ("a", "b")), (other, ("y", "z"))):
        for name in names:
            made.append({"id": 1, "name": name})
        made.rename()
        back = [step(OTHER.ref, TableRenamed(OTHER, ORDERS))]
        made.to.schema.execute(OTHER.ref, back, ORDERS, Commit("back", made.fence))
    assert shop.rows("name") == [("a",), ("b",)]
    for path in [p for p, _ in files_below(ObjectPath(f"{bucket.uri}/lake", bucket.io))]:
        path.unlink()
    there = ObjectPath(f"{bucket.uri}/other/lake", bucket.io)
    for path in [p for p, _ in files_below(there)]:
        path.copy_to(ObjectPath(f"{bucket.uri}/lake", bucket.io) / str(path.relative_to(there)))
    for to in (shop.to, DeltaDestination(shop.to.config)):
        assert rows_of(to, REF, ["name"]) == [("y",), ("z",)]


class _Careless(http.server.BaseHTTPRequestHandler):
    """Hands requests on without their conditions, as a store does that does not know them."""

    protocol_version = "HTTP/1.1"
    to = ""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        there = http.client.HTTPConnection(self.to)
        there.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k != "if-none-match"})
        with there.getresponse() as said:
            content = said.read()
            self.send_response(said.status)
            for name, value in said.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
        there.close()

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _pass

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def careless(s3_server: str) -> Iterator[tuple[Bucket, Bucket]]:
    """A bucket by way of it, and itself. Not in Azure, whose logins sign the condition as well."""
    bucket = new_bucket("s3", s3_server)
    kind = type("Careless", (_Careless,), {"to": bucket.endpoint.removeprefix("http://")})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield replace(bucket, endpoint=f"http://127.0.0.1:{server.server_port}"), bucket
    server.shutdown()
    server.server_close()


def test_a_store_without_conditional_writes_is_refused(careless: tuple[Bucket, Bucket]) -> None:
    over, bucket = careless
    to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=f"{over.uri}/lake", properties=over.io))
    [said] = [c for c in to.lifecycle.test() if not c.ok]
    assert "lets two writers make the same object" in said.detail
    assert "choose another store" in said.hint
    with pytest.raises(DestinationError, match="lets two writers"):
        create(to)
    assert bucket.names() == []


def test_every_check_of_a_good_store_passes_and_leaves_nothing(bucket: Bucket) -> None:
    to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=bucket.io))
    assert [c.detail for c in to.lifecycle.test() if not c.ok] == []
    assert bucket.names("lake") == []


@pytest.mark.slow
def test_a_wrong_place_is_named(bucket: Bucket) -> None:
    wrong = DeltaDestination(
        DeltaConfig.resolved(name="lake", warehouse=f"{bucket.missing}/lake", properties=bucket.io)
    )
    with pytest.raises(ConnectError, match="there is no such bucket"):
        create(wrong)
    away = bucket.unreachable.io
    lost = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=f"{bucket.uri}/lake", properties=away))
    with pytest.raises(StageError, match="does not do what was asked") as caught:
        lost.schema.tables()
    assert bucket.secret not in f"{caught.value} {caught.value.hint} {lost.config} {lost.warehouse}"


@pytest.mark.slow
def test_delta_rs_reads_the_same(shop: Shop, bucket: Bucket) -> None:
    shop.merge({"id": 2, "name": "changed"}, {"id": 3, "name": "c"})
    shop.rename()
    found = find(shop.to.warehouse, OTHER.ref)
    assert found is not None
    there = DeltaTable(str(found.folder), storage_options=dict(bucket.options))
    read = QueryBuilder().register("t", there).execute("SELECT id, name FROM t ORDER BY id").read_all()
    assert [(r["id"], r["name"]) for r in pa.table(read).to_pylist()] == [(1, "a"), (2, "changed"), (3, "c")]


NAMES = st.sampled_from(["a", "b", "A~2"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, NAMES),
        st.tuples(st.just("drop"), NAMES, NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("undrop"), NAMES, NAMES),
        st.tuples(st.just("expire"), NAMES, NAMES),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_names_lead_to_their_tables_whatever_happened(bucket: Bucket, steps: list[tuple[str, str, str]]) -> None:
    """Beside a plain model: which table each name has, and which wait; a table's only row says which it is."""
    place = f"{bucket.uri}/{uuid.uuid4().hex}"
    to = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=place, properties=bucket.io))
    over = DeltaDestination(DeltaConfig.resolved(name="lake", warehouse=place, properties=bucket.io, undo_days=0))
    live, waiting, commit = dict[str, int](), list[tuple[str, int]](), Commit("r", 1)
    for number, (what, name, other) in enumerate(steps):
        ref, wanted = ("shop", name), replace(ORDERS, name=name, id=str(live.get(name)))
        if what == "create" and name not in live:
            to.schema.execute(ref, [step(ref, TableAdded(wanted))], replace(wanted, id=str(number)), commit)
            to.write.append(ref, [stage(to, ref, [{"id": number}])], commit)
            live[name] = number
        elif what == "drop" and name in live:
            to.schema.execute(ref, [step(ref, TableRemoved(wanted))], None, commit)
            waiting.append((name, live.pop(name)))
        elif what == "rename" and name in live and other not in live:
            after = replace(wanted, name=other)
            to.schema.execute(ref, [step(ref, TableRenamed(wanted, after))], after, commit)
            live[other] = live.pop(name)
        elif what == "undrop" and name not in live and (mine := [w for w in waiting if w[0] == name]):
            to.schema.undrop_table(ref, replace(wanted, id=str(mine[-1][1])), commit)
            waiting.remove(mine[-1])
            live[name] = mine[-1][1]
        elif what == "expire":
            over.lifecycle.purge_expired([], 1)
            waiting = []
        assert {r[1]: rows_of(to, r, ["id"]) for r in to.schema.tables()} == {n: [(at,)] for n, at in live.items()}
        assert {(w.ref[1], w.source_id) for w in to.warehouse.waiting()} == {(n, str(at)) for n, at in waiting}
        assert to.schema.foreign([("shop", n) for n in ("a", "b", "A~2")]) == {}
