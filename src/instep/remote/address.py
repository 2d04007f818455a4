"""Where the server is: https, or http on this machine alone, because the API key travels in clear without TLS."""

from __future__ import annotations

from urllib.parse import urlsplit

from instep.errors import Blocked, InstepError
from instep.near import is_loopback

PREFIX = "/api/v1"


def address(given: str) -> str:
    """The server's URL without a slash at its end, from one that may end in /api/v1. InstepError, which never repeats
    a login, for what is no such URL; Blocked for http to another machine."""
    try:
        parts = urlsplit(given.strip())
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")
    except ValueError:
        raise _wrong("it is malformed") from None
    if parts.username is not None or parts.password is not None:
        raise _wrong("it holds a login: the key comes from INSTEP_API_KEY or a file")
    if parts.scheme not in ("http", "https") or not host or not given.strip().isprintable() or " " in given.strip():
        raise _wrong("it is neither https nor http with a host")
    if not parts.path.isascii():
        raise _wrong("its path has letters that a URL writes as %XX")
    if parts.query or parts.fragment:
        raise _wrong("it has a query or a fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise Blocked(
            f"http://{host} is on another machine, and the API key would travel in clear",
            hint="use https, which a proxy before the server ends, or a tunnel to this machine (ssh -L)",
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix(PREFIX)}"


def _wrong(why: str) -> InstepError:
    return InstepError(f"--server is not the URL of a server: {why}", hint="for example https://instep.example.org")
