"""Buckets of S3-compatible stores and of Google, containers of Azure: which one a URI names, and who opens it.

Properties have pyiceberg's names. Azure's container may be named alone, `abfs://CONTAINER/PATH` with
`adls.account-name`, or as Spark does, `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from instep.errors import ConnectError

if TYPE_CHECKING:
    from obstore.store import ClientConfig

S3 = ("s3", "s3a", "s3n")
GOOGLE = ("gs",)
AZURE = ("abfs", "abfss")
SCHEMES = (*S3, *GOOGLE, *AZURE)
AUTHORITY = "adls.blob-storage-authority"
"""The property with another host than Azure's own, for instep.yml alone: keys are sent to it."""
_S3_WORDS = {
    "s3.endpoint": "endpoint",
    "s3.region": "region",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "client.region": "region",
}
_GOOGLE_WORDS = {"gcs.oauth2.token": "bearer_token", "gcs.service.host": "base_url"}
_AZURE_WORDS = {
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_key",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
}
_AZURE_UNREAD = ("adls.connection-string", "adls.token", "adls.anon", "adls.account-host")
"""Properties that only pyiceberg's other file system reads: without an error another login would be used."""
AZURE_HOSTS = (AUTHORITY, "adls.dfs-storage-authority", "adls.blob-storage-scheme", "adls.dfs-storage-scheme")
"""Properties by which pyarrow's file system calls a host other than Azure's own."""
_AZURE_HOST = re.compile(r"([a-z0-9]{3,24})\.(?:dfs|blob)\.core\.windows\.net")


def account_of(netloc: str, io: Mapping[str, str]) -> tuple[str, str]:
    """Return the container and the account that the first part of an `abfs` URI and the properties name. ConnectError
    where they name none, or two."""
    container, at, host = netloc.partition("@")
    account = io.get("adls.account-name", "")
    if not at:
        if not account:
            raise ConnectError(
                f"abfs://{container} names no storage account",
                hint=f"set adls.account-name, or write abfss://{container}@ACCOUNT.dfs.core.windows.net/PATH",
            )
        return container, account
    named = _AZURE_HOST.fullmatch(host)
    if named is None:
        hint = "write CONTAINER@ACCOUNT.dfs.core.windows.net; another host is the property " + AUTHORITY
        raise ConnectError(f"{host!r} is not the host of an Azure storage account", hint=hint)
    if account and account != named[1]:
        hint = "name the same account in both, or leave adls.account-name out"
        raise ConnectError(f"the URI names the account {named[1]}, and adls.account-name {account}", hint=hint)
    return container, named[1]


def container_path(netloc: str) -> str:
    """Return the first part of an `abfs` URI without its account."""
    return netloc.partition("@")[0]


@lru_cache(64)
def open_bucket(scheme: str, netloc: str, io: frozenset[tuple[str, str]]) -> Any:
    """Open the bucket with obstore; without keys among the properties they come from the environment or the machine's
    role."""
    from obstore.store import AzureStore, GCSStore, S3Store

    options = dict(io)
    client: ClientConfig = {"timeout": "60s", "connect_timeout": "10s"}
    if scheme in AZURE:
        container, account = account_of(netloc, options)
        config = {"account_name": account} | _azure_config(account, options)
    else:
        config = _config(options, _GOOGLE_WORDS if scheme in GOOGLE else _S3_WORDS)
    if scheme in S3 and options.get("s3.force-virtual-addressing", "").casefold() == "true":
        config["virtual_hosted_style_request"] = True
    if any(str(config.get(name, "")).startswith("http://") for name in ("endpoint", "base_url")):
        client["allow_http"] = True
    if scheme in AZURE:
        return AzureStore(container, client_options=client, **config)
    return (GCSStore if scheme in GOOGLE else S3Store)(netloc, client_options=client, **config)


def _config(options: Mapping[str, str], words: Mapping[str, str]) -> dict[str, Any]:
    return {word: options[name] for name, word in words.items() if options.get(name)}


def _azure_config(account: str, options: Mapping[str, str]) -> dict[str, Any]:
    _refuse_unread(options)
    config = _config(options, _AZURE_WORDS)
    if endpoint := azure_endpoint(account, options):
        config["endpoint"] = endpoint
    return config


def azure_endpoint(account: str, options: Mapping[str, str]) -> str:
    """Return the account's URL where it is not at Azure's own hosts, else ""."""
    authority = options.get(AUTHORITY, "")
    base = f"{options.get('adls.blob-storage-scheme') or 'https'}://"
    if authority.startswith("."):
        return f"{base}{account}{authority}"
    return f"{base}{authority}/{account}" if authority else ""


def _refuse_unread(options: Mapping[str, str]) -> None:
    if unread := [name for name in _AZURE_UNREAD if options.get(name)]:
        raise ConnectError(
            f"{unread[0]} is not read for files in Azure",
            hint="set adls.account-name with adls.account-key, adls.sas-token, or adls.tenant-id, adls.client-id and "
            "adls.client-secret",
        )


def azure_filesystem(netloc: str, io: Mapping[str, str]) -> Any:
    """Return pyarrow's file system of the account that the first part of an `abfs` URI and the properties name."""
    from pyarrow.fs import AzureFileSystem

    _, account = account_of(netloc, io)
    _refuse_unread(io)
    names = (name for name in (*_AZURE_WORDS, *AZURE_HOSTS) if io.get(name))
    options = {name.removeprefix("adls.").replace("-", "_"): io[name] for name in names}
    return AzureFileSystem(account, **options)


def bucket_hint(scheme: str) -> str:
    """Return what to look at when a bucket cannot be reached."""
    if scheme in AZURE:
        return "check adls.account-name and the container's name"
    if scheme in GOOGLE:
        return "check the bucket's name, and gcs.service.host if it is set"
    return "check s3.endpoint, s3.region and the bucket's name"
