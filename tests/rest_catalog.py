"""Apache Iceberg's REST catalog on a loopback port: its own adapter and servlet, over a database of its own."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from instep.spark.jars import SQLITE, ensure, spark_jars
from instep.spark.java import find_java, launch
from programs import PROGRAMS

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
    classpath = [*jars, *ensure([SQLITE]), *spark_jars()]
    jvm = launch(find_java(), classpath, ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"))
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=jvm.port, auth_token=jvm.secret))
    yield gateway
    gateway.shutdown()
    jvm.close(timeout=30)


@pytest.fixture
def rest_catalog(rest_jvm: JavaGateway, tmp_path: Path) -> Iterator[str]:
    """The address of a catalog without tables."""
    java: Any = rest_jvm.jvm
    warehouse = tmp_path / "rest"
    warehouse.mkdir()
    options = java.java.util.HashMap()
    for key, value in {
        "uri": f"jdbc:sqlite:{warehouse / 'rest.db'}",
        "warehouse": warehouse.as_uri(),
        "jdbc.schema-version": "V1",
        "jdbc.strict-mode": "false",
    }.items():
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
