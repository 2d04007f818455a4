"""Checks of values that come through an API: each yields (place within the value, why) of what is refused.

They look at values in plain: a reference that is resolved later is judged by what it leads to.

Properties of libraries that an API may set, by name: everything else may name code, files or accounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote_plus, urlsplit

from instep.egress.guard import BUCKETS, EgressGuard, EgressRefused
from instep.errors import ProjectError
from instep.project.sections.file_settings import CONNECTORS, DRIVERS, Shelves, real_path
from instep.project.sections.jdbc_address import DIALECTS, FILE_OPTIONS, JdbcDialect, url_options
from instep.project.text.tree import Path

Refusals = Iterator[tuple[Path, str]]

_CHOOSES_CODE = re.compile(
    r"(?i)PYTHON|LD_|DYLD_|PIP_|UV_|PATH$|HOME$|(BASH_)?ENV$|OPENSSL_|GCONV_|GLIBC_|MALLOC_|LOCPATH|NLSPATH|_?JAVA_|JDK_"
    r"|NODE_|PERL|RUBY|GIT_|SSH_|KUBECONFIG|NETRC|ODBC|TNS_ADMIN|PG(SERVICEFILE|SYSCONFDIR|PASSFILE|SSL)|MYSQL_HOME|XDG_"
    r"|BASH_FUNC_|(SHELL|BASH)OPTS$|PS4$|IFS$|BROWSER$|PAGER$|EDITOR$|VISUAL$|LESS(OPEN|CLOSE)$|KRB5_|SASL_|CLASSPATH$"
    r"|CLOUDSDK_|BOTO_CONFIG$|DOCKER_|GEM_|BUNDLE_|LUA_|TCL|R_(HOME|LIBS|PROFILE|ENVIRON)|PHP|SPARK_|HADOOP_|COVERAGE_|PYSPARK_"
    r"|AWS_(CONFIG_FILE|SHARED_CREDENTIALS_FILE|WEB_IDENTITY_TOKEN_FILE|CONTAINER_)|GOOGLE_APPLICATION_CREDENTIALS"
    r"|AZURE_CONFIG_DIR"
)
"""Variables by which programs and libraries find code, or files that name some."""
_ONLY_FILE = "only instep.yml may say that"
_BUCKET_ONLY = "needs a `warehouse` in a bucket, such as s3://bucket/prefix, unless the catalog is sqlite"
_SQLITE_URI = "sqlite:///"
_SERVER_URL = re.compile(
    r"(?i)jdbc:[a-z0-9+.-]+:(tcp:|ssl:|thin:@(tcps?:)?)?//[^/?;:#,\s]+.*|jdbc:oracle:thin:@[^/()\s]+:\d+[:/].*"
)
_SERVICES = frozenset((
    "discord", "gchat", "jsons", "mmosts", "ntfys", "opsgenie", "pagerduty", "pover", "rockets", "slack", "tgram",
    "zulip",
))  # fmt: skip
"""Services of Apprise over TLS that take no file, run nothing on this machine and need no account of it."""
_SERVICE_OPTIONS = frozenset(("format", "overflow", "cto", "rto"))


def nothing(value: Any, section: Any, shelves: Shelves) -> Refusals:
    """Refuse nothing."""
    return iter(())


def file(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a path that is on no shelf. An empty one leads to the project's folder."""
    if why := shelves.refusal(value):
        yield (), why


def files(value: tuple[str, ...], section: Any, shelves: Shelves) -> Refusals:
    """Refuse each path that is on no shelf."""
    for at, path in enumerate(value):
        yield from (((at, *inner), why) for inner, why in file(path, section, shelves))


def place(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a folder that is on no shelf, and a URI that is of no bucket."""
    scheme, separator, _ = value.partition("://")
    if not separator:
        yield from file(value, section, shelves)
    elif scheme not in BUCKETS:
        yield (), f"must be a path on a shelf, or a bucket: {', '.join(f'{name}://' for name in BUCKETS)}"


def host(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse sockets of this machine: they let in by the account of the process. libpq takes one where a host is empty,
    be it one of several."""
    if re.search(r"[/\\\0]", value) or any(not p.strip() or p.strip().startswith("@") for p in value.split(",")):
        yield (), "must be a host's name or address: an API reaches no socket of this machine"


def hosts(value: tuple[str, ...], section: Any, shelves: Shelves) -> Refusals:
    """Refuse each that is no host."""
    for at, name in enumerate(value):
        yield from (((at, *inner), why) for inner, why in host(name, section, shelves))


def instep_yml_only(value: Any, section: Any, shelves: Shelves) -> Refusals:
    """Refuse any value."""
    if value:
        yield (), f"leads to code or places of the machine: {_ONLY_FILE}"


def store_properties(value: Mapping[str, Any], section: Any, shelves: Shelves) -> Refusals:
    """Refuse properties of a bucket that are on no list."""
    yield from (((name,), why) for name, why in store_refusals(value).items())


def warehouse(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse places as `place` does; the warehouse of a catalog that is elsewhere is a bucket."""
    if _catalog_type(section) == "sqlite" or "://" in value:
        yield from place(value, section, shelves)
    else:
        yield (), _BUCKET_ONLY


def catalog(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse catalogs that a URL of a driver, a file or a class decides about, and folders under the others."""
    if _catalog_type(section) is None:
        yield (), f"must be sqlite, glue, rest, or the http(s) address of a REST catalog: of others {_ONLY_FILE}"
    elif value != "sqlite" and section.warehouse == type(section).model_fields["warehouse"].default:
        yield (), _BUCKET_ONLY


def catalog_properties(value: Mapping[str, Any], section: Any, shelves: Shelves) -> Refusals:
    """Refuse properties that are on no list, and a catalog's file that is on no shelf."""
    if (type := _catalog_type(section)) is None:
        return
    yield from (((name,), why) for name, why in catalog_refusals(type, value).items())
    uri = str(value.get("uri", ""))
    if type == "sqlite" and uri and not uri.startswith(_SQLITE_URI):
        yield ("uri",), f"must be {_SQLITE_URI} and a path on a shelf"
    elif type == "sqlite" and uri:
        yield from ((("uri",), why) for _, why in file(uri.removeprefix(_SQLITE_URI), section, shelves))
        if "?" in uri:
            yield ("uri",), "must have no options"


def _catalog_type(section: Any) -> str | None:
    if "://" in section.catalog:
        return "rest" if is_web(section.catalog) else None
    return section.catalog if section.catalog in ("sqlite", "rest", "glue") else None


def labels(value: Mapping[str, Any], section: Any, shelves: Shelves) -> Refusals:
    """Refuse properties of tables that lead readers or writers to code or places."""
    yield from (((name,), why) for name, why in table_refusals(value).items())


def connector_path(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse code that is not on the shelf of connectors."""
    if why := shelves.code_refusal(value, CONNECTORS, "folder"):
        yield (), why


def connector_file(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a file outside of the connector's own folder."""
    folder, path = real_path(shelves.root, section.path), real_path(shelves.root, value)
    if value and (folder is None or path is None or folder not in path.parents):
        yield (), "must be a file in the connector's own folder"


def connector_environment(value: Mapping[str, str], section: Any, shelves: Shelves) -> Refusals:
    """Refuse variables by which a process finds its code."""
    for name in value:
        if _CHOOSES_CODE.match(name):
            yield (name,), f"decides which code runs: {_ONLY_FILE}"


def jdbc_path(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a jar that is not on the shelf of drivers."""
    if value and (why := shelves.code_refusal(value, DRIVERS, "file")):
        yield (), why


def subprotocol(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse databases whose drivers' options are not known."""
    if value and value.lower() not in DIALECTS:
        yield (), f"must be one of {', '.join(sorted(DIALECTS))}: of other databases {_ONLY_FILE}"


def jdbc_url(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse what is no server: files, memory, aliases of files, directories."""
    if not value:
        return
    kind = value.split(":")[1].lower() if value.count(":") > 1 else ""
    try:
        section.check_address()
    except ProjectError as error:
        yield (), f"{error.message}: {error.hint}"
        return
    if kind not in DIALECTS:
        yield (), f"must be of {', '.join(sorted(DIALECTS))}: of other databases {_ONLY_FILE}"
    elif kind == "sqlite":
        yield (), "names a file: write `subprotocol: sqlite`, and the file as `database`"
    elif not _SERVER_URL.fullmatch(value):
        yield (), f"must name a server, as in jdbc:{kind}://HOST:PORT/DATABASE"
    elif named := [name for name in url_options(value) if name.lower() in FILE_OPTIONS]:
        yield (), f"sets {named[0]}, which names a file, or logs in as the machine's account: {_ONLY_FILE}"


def jdbc_database(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a file of SQLite that is on no shelf; drivers take it from the folder in which they were started."""
    if section.subprotocol.lower() != "sqlite":
        return
    if not value.startswith("/"):
        yield (), "must be the whole path of a file on a shelf"
    else:
        yield from file(value, section, shelves)


def jdbc_driver(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse any class but that of the database."""
    if value and value != _dialect(section).driver:
        yield (), f"names a class to load: {_ONLY_FILE}"


def jdbc_options(value: Mapping[str, Any], section: Any, shelves: Shelves) -> Refusals:
    """Refuse options that name files, or that log in as the account of the process."""
    for name in value:
        if name.strip().lower() in FILE_OPTIONS:
            yield (name,), f"names a file, or logs in as the machine's account: {_ONLY_FILE}"


def _dialect(section: Any) -> JdbcDialect:
    kind = section.url.split(":")[1] if section.url.count(":") > 1 else section.subprotocol
    return DIALECTS.get(kind.lower(), JdbcDialect())


def url(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a URL to which nothing would be sent, as far as its own words tell."""
    from instep.egress.http import check_url

    yield from _judged(lambda guard: check_url(guard, value), shelves)


def mail_host(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse a mail server to which nothing would be sent, as far as its own words tell."""
    refused = list(host(value, section, shelves))
    yield from refused or _judged(lambda guard: guard.judged_as_written(value, section.port), shelves)


def _judged(judge: Callable[[EgressGuard], object], shelves: Shelves) -> Refusals:
    try:
        judge(EgressGuard(shelves.hosts))
    except EgressRefused as error:
        yield (), f"{error.message}: {error.hint}"


def apprise(value: str, section: Any, shelves: Shelves) -> Refusals:
    """Refuse services that read files or run programs, and options that may name any."""
    scheme, _, address = value.partition("://")
    if scheme.lower() not in _SERVICES:
        yield (), f"must be of one of {', '.join(sorted(_SERVICES))}: of others {_ONLY_FILE}"
        return
    if "#" in value:
        yield (), "has a #, after which Apprise reads options too"
        return
    query = address.partition("?")[2]
    options = {unquote_plus(part.partition("=")[0]).lower() for part in re.split("[?&;]", query) if part}
    if strange := sorted(options - _SERVICE_OPTIONS):
        yield (
            (),
            f"sets {', '.join(name[:40] for name in strange)}: an API may set {', '.join(sorted(_SERVICE_OPTIONS))}",
        )
    if server := _host_of(value):
        yield from _judged(lambda guard: guard.judged_as_written(server, 443), shelves)


def _host_of(address: str) -> str:
    """Return the host of an Apprise URL, "" where it has a token in its place."""
    try:
        found = urlsplit(address).hostname or ""
    except ValueError:
        return ""
    return found if re.fullmatch(r"[\d.]+|0x[\da-f.x]+|.*:.*|.*localhost\.?", found) else ""


def _words(prefix: str, text: str) -> frozenset[str]:
    return frozenset(f"{prefix}{name}" for name in text.split())


OBJECT_STORE = (
    _words(
        "s3.",
        "endpoint region access-key-id secret-access-key session-token force-virtual-addressing "
        "path-style-access connect-timeout request-timeout anonymous resolve-region role-arn "
        "role-session-name server-side-encryption sse-kms-key-id",
    )
    | _words("client.", "region access-key-id secret-access-key session-token role-arn role-session-name")
    | _words(
        "gcs.", "oauth2.token oauth2.token-expires-at project-id service.host requester-pays default-bucket-location"
    )
    | _words(
        "adls.",
        "connection-string account-name account-key sas-token tenant-id client-id client-secret "
        "account-host token anon",
    )
)
"""Of what reaches a bucket. Profiles, proxies, signers and retry strategies are not among them."""
REST = frozenset((
    "uri", "token", "credential", "scope", "audience", "resource", "oauth2-server-uri", "prefix", "rest-page-size",
    "rest.sigv4-enabled", "rest.signing-region", "rest.signing-name", "token-refresh-enabled",
    "snapshot-loading-mode", "namespace-separator",
))  # fmt: skip
GLUE = _words("glue.", "id region endpoint access-key-id secret-access-key session-token skip-archive max-retries")
CATALOGS: Mapping[str, frozenset[str]] = {"sqlite": frozenset({"uri"}), "rest": REST, "glue": GLUE}
"""Properties of a catalog beside its bucket's, by type. Other types are for instep.yml only."""
_HEADER = re.compile(r"(?i)header\.(?!host$|authorization$|x-amz-)[A-Za-z0-9-]{1,100}")
_URLS = frozenset({"s3.endpoint", "gcs.service.host", "oauth2-server-uri", "glue.endpoint"})
_LOGINS = {
    "gcs.service.host": frozenset({"gcs.oauth2.token"}),
    "adls.account-host": _words("adls.", "account-key sas-token client-secret connection-string token"),
}
"""Hosts that whoever calls them sends a token to, and what it has to be then."""
_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
"""The name of a storage account, which becomes a part of the host that is called."""
_NO_HOST = "must be http:// or https:// and a host"
_WEB = re.compile(r"https?://[^\s/?#]+([/?#]\S*)?")

TABLE = (
    _words(
        "write.parquet.",
        "compression-codec compression-level row-group-size-bytes page-size-bytes page-row-limit "
        "dict-size-bytes row-group-limit bloom-filter-max-bytes",
    )
    | _words(
        "write.",
        "target-file-size-bytes delete.target-file-size-bytes metadata.compression-codec "
        "metadata.previous-versions-max metadata.delete-after-commit.enabled "
        "metadata.metrics.default summary.partition-limit spark.fanout.enabled",
    )
    | _words(
        "read.",
        "split.target-size split.metadata-target-size split.planning-lookback split.open-file-cost "
        "parquet.vectorization.enabled parquet.vectorization.batch-size",
    )
    | _words("history.expire.", "max-snapshot-age-ms min-snapshots-to-keep max-ref-age-ms")
    | _words("commit.", "manifest.target-size-bytes manifest.min-count-to-merge")
)
"""Properties of an Iceberg table that tell its readers and writers how, and not where or by which code."""
_METRICS = re.compile(r"write\.(metadata\.metrics\.column|parquet\.bloom-filter-enabled\.column)\.\S+")
_LABEL = re.compile(r"[A-Za-z][\w.-]{0,199}")
_COMMON_WORDS = _words(
    "",
    """
    write read commit history gc schema format py io impl catalog type uri token credential warehouse prefix location
    s3 gcs gs adls abfs client hdfs hf rest header glue hive dynamodb sql jdbc auth ssl oauth2 scope audience resource
    encryption kms lock metrics instep parquet orc avro spark nessie dell oss ecs snapshot current default cache table
    view namespace
""",
)
"""First words of names that Iceberg's libraries read; any other name is a label that nobody acts upon."""


def store_refusals(properties: Mapping[str, Any], more: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Return by name why properties of an object store, or of a catalog that takes `more`, are refused."""
    allowed = OBJECT_STORE | more
    refused = {
        n: _unknown(allowed) for n in properties if n not in allowed and not (more == REST and _HEADER.fullmatch(n))
    }
    for host, logins in _LOGINS.items():
        if host in properties and not any(_is_set(properties.get(name)) for name in logins):
            refused[host] = f"needs {' or '.join(sorted(logins))}: the machine's own login would go to that host"
    if (account := properties.get("adls.account-name")) is not None and not _ACCOUNT.fullmatch(str(account)):
        refused["adls.account-name"] = "must be 3 to 24 small letters and digits: it becomes a part of a host's name"
    return refused | {n: _NO_HOST for n in properties.keys() & _URLS if not is_web(str(properties[n]))}


def _is_set(value: Any) -> bool:
    """Return whether a login is one: an empty text is none."""
    return value is not None and bool(str(value).strip())


def catalog_refusals(catalog: str, properties: Mapping[str, Any]) -> Mapping[str, str]:
    """Return by name why properties of an Iceberg destination are refused; `catalog` is its type."""
    refused = dict(store_refusals(properties, CATALOGS[catalog]))
    if catalog == "rest" and "uri" in properties and not is_web(str(properties["uri"])):
        refused["uri"] = _NO_HOST
    return refused


def is_web(text: str) -> bool:
    """Return whether a text is the address of a web server."""
    return _WEB.fullmatch(text) is not None


def table_refusals(properties: Mapping[str, Any]) -> Mapping[str, str]:
    """Return by name why properties of a table are refused."""
    return {name: _unknown(TABLE) + ", and labels of your own" for name in properties if not _is_plain(name)}


def _is_plain(name: str) -> bool:
    if name in TABLE or _METRICS.fullmatch(name):
        return True
    words = re.split(r"[.-]", name.lower())
    return bool(_LABEL.fullmatch(name)) and words[0] not in _COMMON_WORDS and "impl" not in words


def _unknown(allowed: frozenset[str]) -> str:
    return f"is not a property that an API may set; it may set {', '.join(sorted(allowed))}"
