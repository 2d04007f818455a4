"""Apache Iceberg's REST catalog on a loopback port: its own adapter and servlet, over a database of its own."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from instep.spark.jars import AWS, ICEBERG, S3_IO, SQLITE, ensure, spark_jars
from instep.spark.java import find_java, launch
from programs import PROGRAMS
from s3_server import Bucket

_JARS = PROGRAMS / "rest"
_SUMS = Path(__file__).parents[1] / "scripts" / "rest_catalog.sha256"
_numbers = itertools.count(1)


def _jars() -> list[Path]:
    """The jars with the pinned content; none if one is missing or another one."""
    found = list[Path]()
    for line in _SUMS.read_text().splitlines():
        digest, name = line.split()
        file = _JARS / name
        if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            return []
        found.append(file)
    return found


@pytest.fixture(scope="session")
def rest_jvm() -> Iterator[JavaGateway]:
    """A JVM with the server's classes."""
    if not (jars := _jars()):
        reason = "no REST catalog is there: run scripts/setup_test.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    classpath = [*jars, *ensure([SQLITE, ICEBERG, AWS]), *spark_jars()]
    jvm = launch(find_java(), classpath, ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=jvm.port, auth_token=jvm.secret))
    yield gateway
    gateway.shutdown()
    jvm.close(timeout=30)


@pytest.fixture
def rest_catalog(rest_jvm: JavaGateway, tmp_path: Path) -> Iterator[str]:
    """The address of a catalog without tables."""
    (tmp_path / "rest").mkdir()
    with serving(rest_jvm, tmp_path / "rest" / "rest.db", {"warehouse": (tmp_path / "rest").as_uri()}) as address:
        yield address


@pytest.fixture
def rest_catalog_in_s3(rest_jvm: JavaGateway, bucket: Bucket, tmp_path: Path) -> Iterator[str]:
    """The same, whose server keeps its files in the bucket."""
    files = {"io-impl": S3_IO, "client.region": "us-east-1", "s3.path-style-access": "true", **bucket.io}
    with serving(rest_jvm, tmp_path / "rest.db", {"warehouse": f"{bucket.uri}/lake", **files}) as address:
        yield address


@contextmanager
def serving(jvm: JavaGateway, database: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """The address of a catalog with these properties while it is served."""
    java: Any = jvm.jvm
    options = java.java.util.HashMap()
    own = {"uri": f"jdbc:sqlite:{database}", "jdbc.schema-version": "V1", "jdbc.strict-mode": "false"}
    for key, value in {**own, **properties}.items():
        options.put(key, value)
    catalog = java.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(java.org.apache.hadoop.conf.Configuration())
    catalog.initialize(f"rest{next(_numbers)}", options)
    servlet = java.org.apache.iceberg.rest.RESTCatalogServlet(java.org.apache.iceberg.rest.RESTCatalogAdapter(catalog))
    server = java.org.eclipse.jetty.server.Server(java.java.net.InetSocketAddress("127.0.0.1", 0))
    paths = java.org.eclipse.jetty.ee10.servlet.ServletContextHandler()
    paths.addServlet(java.org.eclipse.jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server.setHandler(paths)
    server.start()
    connectors = server.getConnectors()
    yield f"http://127.0.0.1:{connectors[0].getLocalPort()}"
    server.stop()
    catalog.close()
