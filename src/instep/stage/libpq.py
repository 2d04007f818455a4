"""What is said to libpq of every PostgreSQL: the same for sources and destinations."""

from __future__ import annotations


def proof_of_password(sslmode: str, host: str) -> str:
    """libpq's `require_auth`: where others may hear, a server that asks for the password itself, and no proof of it,
    is not told. Nobody hears over TLS that has to be there, nor on a local socket."""
    return "" if sslmode.startswith(("require", "verify")) or host.startswith("/") else "!password"
