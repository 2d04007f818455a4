"""Properties of libraries that an API may set, by name: everything else may name code, files or accounts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


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
"""What a catalog takes beside its bucket's properties, by type. A type that is missing is of instep.yml only."""
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


def store_refusals(given: Mapping[str, Any], more: frozenset[str] = frozenset()) -> Mapping[str, str]:
    """Say by name why properties of an object store, or of a catalog that takes `more`, are refused."""
    known = OBJECT_STORE | more
    refused = {n: _unknown(known) for n in given if n not in known and not (more == REST and _HEADER.fullmatch(n))}
    for host, logins in _LOGINS.items():
        if host in given and not any(_is_set(given.get(name)) for name in logins):
            refused[host] = f"needs {' or '.join(sorted(logins))}: the machine's own login would go to that host"
    if (account := given.get("adls.account-name")) is not None and not _ACCOUNT.fullmatch(str(account)):
        refused["adls.account-name"] = "must be 3 to 24 small letters and digits: it becomes a part of a host's name"
    return refused | {n: _NO_HOST for n in given.keys() & _URLS if not is_web(str(given[n]))}


def _is_set(value: Any) -> bool:
    """Return whether a login is one: an empty text is none."""
    return value is not None and bool(str(value).strip())


def catalog_refusals(catalog: str, given: Mapping[str, Any]) -> Mapping[str, str]:
    """Say by name why properties of an Iceberg destination are refused; `catalog` is its type."""
    refused = dict(store_refusals(given, CATALOGS[catalog]))
    if catalog == "rest" and "uri" in given and not is_web(str(given["uri"])):
        refused["uri"] = _NO_HOST
    return refused


def is_web(text: str) -> bool:
    """Return whether a text is the address of a web server."""
    return _WEB.fullmatch(text) is not None


def table_refusals(given: Mapping[str, Any]) -> Mapping[str, str]:
    """Say by name why properties of a table are refused."""
    return {name: _unknown(TABLE) + ", and labels of your own" for name in given if not _is_plain(name)}


def _is_plain(name: str) -> bool:
    if name in TABLE or _METRICS.fullmatch(name):
        return True
    words = re.split(r"[.-]", name.lower())
    return bool(_LABEL.fullmatch(name)) and words[0] not in _COMMON_WORDS and "impl" not in words


def _unknown(known: frozenset[str]) -> str:
    return f"is not a property that an API may set; it may set {', '.join(sorted(known))}"
