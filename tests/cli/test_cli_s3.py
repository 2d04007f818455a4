"""Projects whose lake is in an object store, by the commands, and where their secrets are seen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cli_world import PROJECT, SQLITE, Shop

from s3_server import SECRET, Bucket

LAKE = """
    type: iceberg
    warehouse: WAREHOUSE
    upsert_rows: 0
    properties:
      uri: sqlite:///FOLDER/catalog.db
      s3.endpoint: ENDPOINT
      s3.region: us-east-1
      s3.access-key-id: ${env:LAKE_KEY}
      s3.secret-access-key: ${env:LAKE_SECRET}
"""
LOGGED = """\
engine: spark
spark:
  master: local[2]
  driver_memory: 1g
  conf:
    spark.eventLog.enabled: true
    spark.eventLog.compress: false
    spark.eventLog.dir: file://FOLDER/events
"""
PLACE = "{type: iceberg, warehouse: lake}"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "AKIACANARY")
    monkeypatch.setenv("LAKE_SECRET", SECRET)


def text(shop: Shop, bucket: Bucket, more: str = "") -> str:
    lake = LAKE.replace("WAREHOUSE", f"{bucket.uri}/lake").replace("ENDPOINT", bucket.endpoint)
    return (PROJECT.replace(PLACE, lake) + more).replace("FOLDER", str(shop.folder))


def shown(shop: Shop, *words: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, whose JVM has the jars for object stores."""
    command = [sys.executable, "-c", "import sys; from instep.cli.main import main; sys.exit(main())"]
    options = {"capture_output": True, "text": True, "timeout": 300, "env": {**os.environ, "INSTEP_ARCHIVE": "off"}}
    return subprocess.run([*command, "--project", str(shop.folder), *words], **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.drawn(5)
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("keys")
def test_spark_merges_in_a_bucket_and_shows_no_secret(shop: Shop, bucket: Bucket) -> None:
    shop.folder.joinpath("events").mkdir()
    shop.write(SQLITE, text=text(shop, bucket, LOGGED))
    said = [shown(shop, "sync")]
    shop.sql("""update "order" set amount = '7.00' where id = 1; insert into "order" values (3, 2, '1.00')""")
    said += [shown(shop, "sync"), shown(shop, "verify"), shown(shop, "query", 'select * from shop."order"')]
    assert [(s.returncode, s.stderr) for s in said if s.returncode] == []
    assert "equal" in said[2].stdout
    assert "7.00" in said[3].stdout
    logs = [f for f in shop.folder.joinpath("events").rglob("*") if f.is_file() and f.stat().st_size > 10_000]
    told = [f.read_text() for f in logs]
    assert any("SparkListenerJobStart" in text and "MapInArrow" in text for text in told), "what is looked at is there"
    assert [s for s in said if SECRET in s.stdout + s.stderr] == []
    files = [f for f in shop.folder.rglob("*") if f.is_file()]
    assert [f.name for f in files for one in (SECRET, "AKIACANARY") if one.encode() in f.read_bytes()] == []
    assert [n for n in bucket.names() if SECRET.encode() in bucket.read(n)] == []
