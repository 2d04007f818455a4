"""What is said to libpq of every PostgreSQL: the same for sources and destinations."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from instep.loopback import is_near

T = TypeVar("T")
IN_CLEAR = "server requested a cleartext password"
_NO_TLS = "does not support SSL"


def proof_of_password(sslmode: str, host: str) -> str:
    """libpq's `require_auth`: where others may hear, a server that asks for the password itself, and no proof of it,
    is not told. Nobody hears over TLS that has to be there, nor on this machine."""
    return "" if sslmode.startswith(("require", "verify")) or is_near(host) else "!password"


def opened(info: str, open: Callable[[str], T]) -> T:
    """Return what `open` makes of libpq's keywords, and raises. A server that asks for the password itself, where there
    may be no TLS, is asked again over TLS alone, and told it there; without TLS the first refusal stands."""
    try:
        return open(info)
    except Exception as error:
        secret = _over_tls(info) if IN_CLEAR in str(error) else ""
        if not secret:
            raise
        try:
            return open(secret)
        except Exception as other:
            if _NO_TLS in str(other):
                raise error from None
            raise


def _over_tls(info: str) -> str:
    """Return the same keywords, where the password may be told; "" for those that want no TLS."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    options = conninfo_to_dict(info)
    if options.pop("sslmode", "") == "disable":
        return ""
    options.pop("require_auth", None)
    return make_conninfo("", **{**options, "sslmode": "require"})
