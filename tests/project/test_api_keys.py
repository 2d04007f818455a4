"""What an API can set: every key says what it may lead to, and values that lead elsewhere are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from instep.destinations.iceberg.metadata.catalog import IcebergConfig, Lake
from instep.project.allowed import keys as api_keys
from instep.project.allowed.keys import (
    KEYS,
    MAIL,
    NAMES,
    PARTS,
    PORT,
    PUBLIC,
    SECRET,
    SETTING,
    SQL,
    addresses,
    is_address,
    reach_of,
    refusals,
)
from instep.project.allowed.values import GLUE, OBJECT_STORE, nothing, table_refusals
from instep.project.allowed.values import REST as REST_PROPERTIES
from instep.project.documents import TYPES, InvalidObject, plain_secrets, plain_section_of
from instep.project.sections.databases import SourceSection
from instep.project.sections.file_settings import SHELVES, Shelves
from instep.project.sections.sources import SqliteSourceSection
from instep.project.sections.values import Section, looks_secret
from instep.redaction import SECRET_NAME, names_secret

OPEN = {
    "SshSection.key", "PostgresSourceSection.options", "ConnectorServer.configuration", "AirbyteServer.configuration",
}  # fmt: skip
"""Keys that lead somewhere by design, whatever their value is: the table says where."""


def sections(annotation: Any, seen: set[type[Section]]) -> Iterator[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in seen:
        assert issubclass(annotation, Section)
        seen.add(annotation)
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation, seen)
    for inner in get_args(annotation):
        yield from sections(inner, seen)


ALL = list(sections(tuple[tuple(TYPES.values())], set()))  # type: ignore[misc]
FIELDS = [(section, key) for section in ALL for key in section.model_fields]


def test_every_key_has_an_entry() -> None:
    assert len(FIELDS) > 250
    assert [f"{s.__name__}.{key}" for s, key in FIELDS if reach_of(s, key) is None] == []
    known = {(cls, key) for cls, found in KEYS.items() for key in found}
    assert [k for cls, k in known if not any(issubclass(s, cls) and k in s.model_fields for s in ALL)] == []


def test_a_key_without_an_entry_is_refused(tmp_path: Path) -> None:
    class Newer(SqliteSourceSection):
        init: str = ""

    assert reach_of(Newer, "init") is None
    found = dict(refusals(Newer(type="sqlite", path="data/x.db"), shelves(tmp_path)))
    assert list(found) == [("init",)]


def test_what_leads_somewhere_is_checked() -> None:
    harmless = (SETTING, PORT, NAMES, SECRET, PUBLIC, MAIL, SQL, PARTS)
    rules = {(s, k): reach_of(s, k) for s, k in FIELDS}
    open_ = {f"{cls.__name__}.{k}" for (s, k), r in rules.items() if r and r not in harmless and r.check is nothing
             for cls in KEYS if issubclass(s, cls) and KEYS[cls].get(k) is r}  # fmt: skip
    assert open_ == OPEN


def shelves(root: Path, *named: str) -> Shelves:
    return Shelves.of(root, named or SHELVES, f"sqlite:///{root / '.instep' / 'state.db'}")


FILES = [
    ".instep", ".instep/keys", ".instep/state.db", "data/../.instep/keys", "/etc/passwd", "../outside", "~/.ssh/id_rsa",
    ".env", "instep.yml", "connectors/c/connector.py", "file:///etc/passwd", "file:/etc/passwd", "data/%2e%2e/x",
    "http://h/x", "hdfs://h/x", "data/link/x", "data/keys", ".", "",
]  # fmt: skip
POSTGRES = {"type": "postgres", "database": "d", "user": "u"}
REST = {"type": "iceberg", "catalog": "https://h", "warehouse": "s3://b/x"}
H2 = {"type": "jdbc", "subprotocol": "h2", "host": "h", "database": "d"}
LAKE = {"type": "iceberg", "warehouse": "lakes/x"}
CODE = {"type": "connector", "path": "connectors/c"}
LOADERS = [
    "py-io-impl", "py-catalog-impl", "io-impl", "catalog-impl", "s3.retry-strategy-impl", "s3.profile-name", "ssl",
    "auth", "client.profile-name", "/usr/bin/touch", "gcs.session-kwargs", "hdfs.host", "S3.ENDPOINT", "type",
    "warehouse", "",
]  # fmt: skip


def at_files(kind: str, spec: dict[str, Any], *path: str) -> Iterator[tuple[str, dict[str, Any], tuple[str, ...]]]:
    """The document with each path in the key's place."""
    for text in FILES:
        if text or path[0] in ("path", "warehouse"):  # of other keys an empty text means: none
            yield kind, _with(spec, path, text), path


def _with(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    return {**spec, path[0]: _with(spec.get(path[0], {}), path[1:], value) if path[1:] else value}


TLS = {**POSTGRES, "tls": {"cert": "data/c", "key": "K"}}
HOSTILE: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    *at_files("source", {"type": "sqlite"}, "path"),
    *at_files("source", {"type": "files"}, "path"),
    *at_files("source", POSTGRES, "tls", "ca"),
    *at_files("source", TLS, "tls", "cert"),
    *at_files("source", {**POSTGRES, "type": "mysql"}, "tls", "ca"),
    *at_files("source", {**POSTGRES, "ssh": {"host": "h", "user": "u"}}, "ssh", "known_hosts"),
    *at_files("destination", {"type": "duckdb"}, "path"),
    *at_files("destination", {"type": "duckdb", "path": "lakes/x.duckdb"}, "staging"),
    *at_files("destination", POSTGRES, "staging"),
    *at_files("destination", POSTGRES, "tls", "ca"),
    *at_files("destination", {"type": "delta"}, "warehouse"),
    *at_files("destination", {"type": "iceberg"}, "warehouse"),
    *at_files("channel", {"type": "webhook", "url": "https://h", "secret": "x"}, "ca"),
    *at_files("channel", {"type": "email", "to": ["a@b.c"], "sender": "a@b.c"}, "ca"),
    *at_files("connection", {}, "downstream", "manifest"),
    *(("connection", {"downstream": {"sql": ["data", text]}}, ("downstream", "sql", 1)) for text in FILES if text),
    *(("destination", {**LAKE, "properties": {"uri": f"sqlite:///{t}"}}, ("properties", "uri")) for t in FILES),
    *(("destination", {**spec, "properties": {name: "x"}}, ("properties", name)) for name in LOADERS
      for spec in (LAKE, REST, {"type": "delta", "warehouse": "s3://b/x"}, {"type": "duckdb", "path": "data/d"},
                   POSTGRES)),
    *(("source", {"type": "files", "path": "data/x", "properties": {n: "x"}}, ("properties", n)) for n in LOADERS),
    *(("destination", {**LAKE, "catalog": c}, ("catalog",)) for c in (
        "sql", "in-memory", "hive", "bigquery", "postgresql://h/d", "sqlite:///x", "file:///x", "rest", "https://h")),
    ("destination", {**REST, "warehouse": "lakes/x"}, ("warehouse",)),
    ("destination", {"type": "iceberg", "catalog": "https://h"}, ("catalog",)),
    ("destination", {**LAKE, "properties": {"s3.endpoint": "file:///etc"}}, ("properties", "s3.endpoint")),
    *(("destination", {**REST, "properties": {name: "http://h"}}, ("properties", name)) for name in (
        "gcs.service.host", "adls.account-host", "header.Host", "header.AUTHORIZATION", "header.x-amz-date")),
    *(("destination", {**REST, "properties": {host: "http://h", login: value}}, ("properties", host))
      for host, login, value in (
          ("gcs.service.host", "gcs.oauth2.token", ""), ("gcs.service.host", "gcs.oauth2.token", " "),
          ("adls.account-host", "adls.anon", "true"), ("adls.account-host", "adls.account-key", ""))),
    *(("destination", {**REST, "properties": {"adls.account-name": name}}, ("properties", "adls.account-name"))
      for name in ("evil.example/x", "a@evil", "evil.example#", "ab", "Store", "")),
    *(("source", {**POSTGRES, "host": host}, ("host",)) for host in (
        "/var/run/postgresql", "@abstract", "a,/tmp", "", " ", ",", "a,", ",a", "a,,b", "a,@abstract", "a, @abstract")),
    ("source", {**POSTGRES, "type": "mysql", "host": "/run/mysqld.sock"}, ("host",)),
    ("source", {**POSTGRES, "read_replica": ["h", "/tmp"]}, ("read_replica", 1)),
    ("source", {**POSTGRES, "ssh": {"host": "/tmp/x", "user": "u"}}, ("ssh", "host")),
    *(("destination", {**POSTGRES, "host": host}, ("host",)) for host in ("/tmp", "", "h,", "h,@abstract")),
    ("source", {**H2, "subprotocol": "monetdb", "url": ""}, ("subprotocol",)),
    ("source", {**H2, "driver": "evil.Driver"}, ("driver",)),
    *(("source", {**H2, "jars": [jar]}, ("jars", 0, "path")) for jar in (
        "data/x.jar", "/tmp/x.jar", "drivers", "drivers/../data/x.jar", "connectors/x.jar", "http://h/x.jar")),
    ("source", {**H2, "jars": {"maven": "g:n:1", "sha256": "0" * 64}}, ("jars", 0, "maven")),
    *(("source", {"type": "jdbc", "url": f"jdbc:{url}"}, ("url",)) for url in (
        "h2:mem:x", "h2:file:/x", "h2:./x", "h2:mem:x;INIT=RUNSCRIPT FROM 'x'", "derby:/x;create=true", "sqlite:/etc/x",
        "sqlite::resource:http://h/x", "oracle:thin:@alias", "oracle:oci:@h:1/x", "monetdb://h/x", "postgresql:d",
        "postgresql://h/d?sslkey=/x", "postgresql://h/d?socketFactory=x", "mysql://h/d?allowLoadLocalInfile=true",
        "mysql://x%2F,(host=evil,port=1,allowLoadLocalInfile=true)/d", "mysql://x%2F,address=(host=e)(socketFactory=a.B)/d",
        "mysql://h,[host=e]/d", "db2://h:1/d:traceFile=/tmp/x;", "db2://h:1/d:sslTrustStoreLocation=/etc/x;",
        "db2://h:1/d:clientRerouteServerListJNDIName= ldap://e/x;", "oracle:thin:@config-file:7/x.json",
        "postgresql://u:p@h/d", "sqlserver://h;integratedSecurity=true", "snowflake://h/?authenticator=externalbrowser")),
    ("source", {"type": "jdbc", "url": "jdbc:db2://h:1/{database};", "database": "d:securityMechanism=11"}, ("url",)),
    *(("source", {"type": "jdbc", "subprotocol": "sqlite", "database": d}, ("database",)) for d in (
        "/etc/x", "x.db", ":memory:", "/etc/../x", "data/x.db")),
    *(("source", {**H2, "subprotocol": "postgresql", "options": {name: "/x"}}, ("options", name)) for name in (
        "sslkey", "sslcert", "sslrootcert", "SSLKEY")),
    ("source", {**H2, "subprotocol": "oracle", "options": {"oracle.net.tns_admin": "/x"}},
     ("options", "oracle.net.tns_admin")),
    *(("source", {**CODE, "path": path}, ("path",)) for path in (
        "connectors", "connectors/../data", "/tmp/c", "data/c", ".instep/c", "connectors/out")),
    ("source", {**CODE, "python": "/bin/sh"}, ("python",)),
    ("source", {**CODE, "environments": "/tmp"}, ("environments",)),
    ("source", {**CODE, "configuration_file": ".instep/keys"}, ("configuration_file",)),
    *(("source", {**CODE, "environment": {name: "x"}}, ("environment", name)) for name in (
        "LD_PRELOAD", "OPENSSL_CONF", "GCONV_PATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "AWS_CONFIG_FILE",
        "KUBECONFIG", "NETRC", "UV_INDEX_URL", "NODE_OPTIONS", "PERL5OPT", "GIT_SSH_COMMAND", "PGSERVICEFILE", "HOME",
        "BASH_FUNC_ls%%", "SHELLOPTS", "PS4", "BROWSER", "PAGER", "LESSOPEN", "KRB5_CONFIG", "CLASSPATH",
        "CLOUDSDK_PYTHON", "BOTO_CONFIG", "DOCKER_HOST", "SPARK_HOME", "PYSPARK_PYTHON", "COVERAGE_PROCESS_START")),
    *(("channel", {"type": "apprise", "url": url}, ("url",)) for url in (
        "msteams://x?template=/etc/passwd", "dbus://", "syslog://", "discord://a/b?template=/etc/passwd", "file:///x",
        "jsons://h?attach=/etc/passwd", "json://h", "ntfy://h/t",
        "mmost://h/t", "rocket://u:p@h/r", "mailto://u:p@h?pgpkey=/x", "vapid://x?keyfile=/x", "macosx://",
        "tgram://123456789:abcdefg_hijklmnop/12315544/#?template=http%3A%2F%2F127.0.0.1%2Fx", "jsons://h/p#?verify=no",
        "jsons://h/p?format=text;verify=no", "jsons://h/p?x?verify=no", "jsons://h/p?%76erify=no")),
    *(("connection", {"tables": {"a.b": {"properties": {name: "x"}}}}, ("tables", "a.b", "properties", name))
      for name in (
        "py-io-impl", "write.py-location-provider.impl", "io-impl", "write.data.path", "write.metadata.path",
        "s3.endpoint", "encryption.kms-impl", "write.location-provider.impl", "instep.view", "a.impl", "a b")),
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a link on its shelf, to its keys, and one on the shelf of connectors that leads out of it."""
    for folder in ("project/.instep", "project/data", "project/lakes", "project/connectors/c", "outside"):
        (tmp_path / folder).mkdir(parents=True)
    root = tmp_path / "project"
    (root / "data/link").symlink_to(tmp_path / "outside")
    (root / "data/keys").symlink_to("../.instep/keys")
    (root / "connectors/out").symlink_to(tmp_path / "outside")
    return root


@pytest.mark.parametrize(("kind", "spec", "place"), HOSTILE, ids=[f"{k}-{s}" for k, s, _ in HOSTILE])
def test_a_hostile_value_is_refused_by_its_key(root: Path, kind: Any, spec: dict[str, Any], place: Any) -> None:
    if spec.get("catalog") in ("rest", "https://h") and spec.get("warehouse") == "lakes/x":
        place = ("warehouse",)
    try:
        found = list(refusals(plain_section_of(kind, "x", spec), shelves(root)))
    except InvalidObject:
        return  # no project file may say it either
    assert place in [path for path, _ in found], found


def test_what_leads_nowhere_else_is_taken(root: Path) -> None:
    good: list[tuple[Any, dict[str, Any]]] = [
        ("source", {"type": "sqlite", "path": "data/x.db"}), ("source", {"type": "files", "path": f"{root}/data/new"}),
        ("source", {"type": "files", "path": "s3://b/x", "properties": {"s3.endpoint": "http://h:9000"}}),
        ("source", {**POSTGRES, "host": "db.example", "tls": {"ca": "data/ca.pem"}}),
        ("source", {**H2, "jars": "drivers/h2.jar"}), ("source", {**CODE, "configuration_file": "connectors/c/x.json"}),
        ("source", {"type": "jdbc", "url": "jdbc:sqlserver://db:1433;databaseName=shop;encrypt=strict"}),
        ("source", {"type": "jdbc", "url": "jdbc:oracle:thin:@db:1521:SHOP"}),
        ("source", {"type": "jdbc", "subprotocol": "sqlite", "database": f"{root}/data/x.db"}),
        ("destination", LAKE), ("destination", {"type": "iceberg"}), ("destination", POSTGRES),
        ("destination", {**LAKE, "properties": {"uri": "sqlite:///lakes/c.db"}}),
        ("destination", {**REST, "properties": {"token": "t", "header.X-A": "1", "s3.region": "eu"}}),
        ("destination", {**REST, "properties": {"gcs.service.host": "http://h", "gcs.oauth2.token": "t"}}),
        ("destination", {**REST, "properties": {"adls.account-host": "h", "adls.account-key": "k"}}),
        ("destination", {**REST, "properties": {"adls.account-name": "store1", "adls.anon": "True"}}),
        ("channel", {"type": "apprise", "url": "discord://a/b"}),
        ("channel", {"type": "apprise", "url": "jsons://h/p?format=text&overflow=split"}),
        ("source", {"type": "jdbc", "url": "jdbc:postgresql://[::1]:5432,b:5433/d"}),
        ("source", {"type": "jdbc", "url": "jdbc:mysql://a:3306,b/d?tlsVersions=TLSv1.3"}),
        ("source", {"type": "jdbc", "url": "jdbc:db2://h:50000/d:currentSchema=S;"}),
        ("source", {**CODE, "environment": {"REGION": "eu", "API_HOST": "h"}}),
        ("source", {**CODE, "environment": {"EXPORT_PATH": "/a", "PAGER_DUTY_ID": "x", "IFSC": "y"}}),
        ("connection", {"tables": {"a.b": {"properties": {"owner": "sales", "write.parquet.page-row-limit": 9}}}}),
    ]  # fmt: skip
    for kind, spec in good:
        assert list(refusals(plain_section_of(kind, "x", spec), shelves(root))) == [], spec
    assert table_refusals({"data-owner": "x", "write.metadata.metrics.column.a": "full"}) == {}


def test_the_project_file_names_other_shelves(root: Path) -> None:
    outside = root.parent / "outside"
    more = shelves(root, ".", str(outside))
    assert [more.refusal(text) for text in ("x.db", "data/x", f"{outside}/x", "data/link/x")] == [""] * 4
    for text in (".", ".instep/x", "data/keys", ".env", "instep.yml", "connectors/x", "drivers/x", "/etc/passwd"):
        assert more.refusal(text), text
    assert shelves(root, ".").refusal("data/link/x")
    kept = Shelves.of(root, ("data",), f"sqlite:///{root}/data/control/state.db")
    assert kept.refusal("data") == kept.refusal("data/control") == kept.refusal("data/control/state.db") != ""
    assert kept.refusal("data/other") == ""


def test_entries_are_found_by_class() -> None:
    assert reach_of(SqliteSourceSection, "app_options") is KEYS[SourceSection]["app_options"]
    assert api_keys.reach_of(SqliteSourceSection, "nothing") is None


ADDRESSES = {
    "SshSection.host",
    "SshSection.port",
    "AirbyteServer.configuration",
    "ConnectorServer.path",
    "ConnectorServer.configuration",
    "ConnectorServer.environment",
    "EmailChannelSection.host",
    "EmailChannelSection.port",
    "IcebergDestinationSection.catalog",
    *(
        f"{section}.properties"
        for section in (
            "FilesSourceSection",
            "IcebergDestinationSection",
            "DestinationSection",
        )
    ),
    *(f"JdbcServer.{key}" for key in ("subprotocol", "url", "host", "port", "options")),
    "ServerSection.read_replica",
    "Tls.mode",
    "Tls.ca",
    "SshSection.host_key",
    "SshSection.known_hosts",
    "EmailChannelSection.tls",
    "EmailChannelSection.ca",
    *(f"{section}.{key}" for section in ("DatabaseSection", "PostgresDestinationSection") for key in ("host", "port")),
}


def test_what_decides_where_secrets_go_is_known() -> None:
    """Every key that is judged as a server is among them, and every one of TLS: a new one without `address` fails."""
    found = {f"{cls.__name__}.{key}" for cls, keys in KEYS.items() for key, rule in keys.items() if rule.address}
    assert found == ADDRESSES
    named = {
        f"{c.__name__}.{k}"
        for c, keys in KEYS.items()
        for k, r in keys.items()
        if any(word in r.words for word in ("server", "address", "variables")) and r is not SECRET
    }
    assert named - found == {
        "PostgresSourceSection.options",
        "WebhookChannelSection.url",
        "PostChannelSection.url",
        "JdbcServer.database",
    }, "settings of a session; a signing secret is never sent; their URL is the secret; within the server"


def test_addresses_within_mappings_are_found_by_name_and_look() -> None:
    spec = {
        "type": "connector",
        "path": "connectors/c",
        "configuration": {
            "api_key": "k",
            "base_url": "https://a",
            "subdomain": "acme",
            "start": "2024-01-01",
            "from": "x.example",
            "n": 2,
        },
    }
    found = dict(addresses(plain_section_of("source", "x", spec)))
    assert {".".join(map(str, path[1:])) for path in found if path[0] == "configuration"} == {
        "base_url",
        "subdomain",
        "from",
    }


LOOKS_LIKE_ONE = (
    "x.example", "x。example/", "x．example", "x｡example", "x.рф", "例え.テスト", "ｘ．ｅｘａｍｐｌｅ",
    "x.e\u00adxample", "x.\texample", "x.exam\u200bple", "10.20.30.40", "127.0.1", "203.7405580", "3232235777/",
    "u@3232235777", "0xC0A80001", "0xc0.0xa8.1", "٣٢٣٢٢٣٥٧٧٧", "[2a01:4f8:1:2:3:4:5:6]", "::1", "localhost:1", "ftp://x",
)  # fmt: skip
LOOKS_LIKE_NONE = (
    "acme", "eu-west-1", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00.000Z", "20240101T000000Z",
    "12:30:05.250", "2", "1.5", "0.25", "100000", "2024-01", "v2.1", "true", "a b", "data/x", "Größe", "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "one"), [*((t, True) for t in LOOKS_LIKE_ONE), *((t, False) for t in LOOKS_LIKE_NONE)]
)
def test_an_address_is_known_in_every_form_that_programs_read(text: str, one: bool) -> None:
    """A connector puts a value into an address of its own, `https://{shop}.example`, and its secrets go there."""
    assert is_address("shop", text) is one
    assert is_address("https_proxy", text), "by its name"


PLAIN = """
    adls.account-host adls.account-name adls.anon adls.client-id adls.tenant-id audience client.access-key-id
    client.region client.role-arn client.role-session-name gcs.default-bucket-location gcs.project-id
    gcs.requester-pays gcs.service.host glue.access-key-id glue.endpoint glue.id glue.max-retries glue.region
    glue.skip-archive namespace-separator oauth2-server-uri prefix resource rest-page-size rest.signing-name
    rest.signing-region rest.sigv4-enabled s3.access-key-id s3.anonymous s3.connect-timeout s3.endpoint
    s3.force-virtual-addressing s3.path-style-access s3.region s3.request-timeout s3.resolve-region s3.role-arn
    s3.role-session-name s3.server-side-encryption s3.sse-kms-key-id scope snapshot-loading-mode uri
"""
"""Properties of libraries whose values everybody may read who sees the destination."""
CALLED_SO = """
    password db_pwd pwd passcode client_secret refreshToken api-key apiKey private_key account_key sharedKey signing_key
    access_key aws_access_key connection_string adls.connection-string header.Authorization proxy-authorization Cookie
    cookies salt sas adls.sas pat github_pat webhook_url credentials
"""
CALLED_OTHERWISE = """
    s3.access-key-id accessKeyId aws_access_key_id user host authorization_url cookie_policy sort_key pattern path
    primary_key author dispatch salted sse-kms-key-id
"""
OF_SECRET_FORM = [
    "https://u:p@h", "jdbc:snowflake://h/?db=d&token=abc", "jdbc:sqlserver://h:1;trustStorePassword=abc",
    "https://b.blob.example/c?sv=1&sig=abc", "https://h/?X-Amz-Signature=abc", "https://h/?api_key=abc&page=2",
    "host=h dbname=d password=abc", "host=h password = abc", "Server=h;UID=u;PWD=abc;", "AccountKey=abc;AccountName=n",
    "Endpoint=sb://h/;SharedAccessKeyName=n;SharedAccessKey=abc", "Bearer abcdefgh1234", "Basic dTpwYXNzd29yZA==",
    "-----BEGIN RSA PRIVATE KEY-----\nabc", "x\n-----BEGIN PRIVATE KEY-----", '{"type": "x", "private_key": "abc"}',
]  # fmt: skip
OF_OTHER_FORM = [
    "https://h/?page=2&user=u", "https://h/?token=${env:T}", "host=h user=u", "select * from t where token = 'x'",
    "https://h/oauth?token_type=x", "a;tokens=5", "-----BEGIN CERTIFICATE-----", "Basic tier", "arn:aws:iam::1:role/r",
    "jdbc:postgresql://h/d?ssl=true", "2024-01-01T00:00:00", "://:::", "the password is set elsewhere",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["connector", "airbyte"])
def test_what_is_a_secret_by_its_name_or_its_form_is_sealed(kind: str) -> None:
    """Whoever reads sources sees the rest of their configuration."""
    own = {"connector": {"path": "connectors/c"}, "airbyte": {"manifest": "m.yaml"}}[kind]
    configuration = dict.fromkeys([*CALLED_SO.split(), *CALLED_OTHERWISE.split()], "x")
    configuration |= {f"f{number}": text for number, text in enumerate([*OF_SECRET_FORM, *OF_OTHER_FORM])}
    sealed = {path[-1] for path in plain_secrets("source", "x", {"type": kind, **own, "configuration": configuration})}
    assert sealed == {*CALLED_SO.split(), *(f"f{number}" for number in range(len(OF_SECRET_FORM)))}
    assert [name for name in CALLED_SO.split() if not names_secret(name)] == []
    assert [text for text in OF_SECRET_FORM if not looks_secret(text)] == []


def test_a_url_with_a_secret_among_its_options_is_sealed_as_a_whole() -> None:
    spec = {"type": "jdbc", "url": "jdbc:snowflake://h/?db=d&token=abc", "user": "u", "jars": "drivers/x.jar"}
    assert plain_secrets("source", "x", spec) == (("url",),)
    assert plain_secrets("source", "x", {**spec, "url": "jdbc:snowflake://h/?db=d"}) == ()


@pytest.mark.parametrize(("begin", "more"), [
    ("://", ":"), ("?", "token"), ("", "?token"), ("", "-----BEGIN "), ("", "password "), ("", '"private_key"'),
    ("", ";"), ("Bearer ", "a"), ("", "api.key"), ("", "://a:"),
])  # fmt: skip
def test_a_text_is_looked_at_in_a_time_that_grows_with_it(begin: str, more: str) -> None:
    """Whoever may send a request holds up no other one: the first of these took hours."""
    text = begin + more * (1_000_000 // len(more)) + "\n!"
    assert not looks_secret(text)
    SECRET_NAME.search(text)


HEADERS = ("header.Authorization", "header.authorization", "header.Proxy-Authorization", "header.Cookie")


@pytest.mark.parametrize("name", sorted({*OBJECT_STORE, *REST_PROPERTIES, *GLUE, *HEADERS}.difference(PLAIN.split())))
def test_a_property_that_lets_in_is_sealed_hidden_and_no_setting_of_spark(name: str) -> None:
    """A new property is one of these, or is named as one that lets nobody in."""
    spec = {"type": "iceberg", "catalog": "https://h", "warehouse": "s3://b/x", "properties": {name: "hush-91ab"}}
    assert plain_secrets("destination", "x", spec) == (("properties", name),)
    assert names_secret(name), "what repeats it is hidden"
    lake = Lake(IcebergConfig.resolved(name="lake", **spec))
    assert not [key for key, value in lake.spark_conf().items() if "hush-91ab" in value]
    assert [value for value in lake.spark_secrets().values() if "hush-91ab" in value] == ["hush-91ab"]
    assert lake.redacted("no: hush-91ab") == "no: ***"
