"""Why a PostgreSQL server's certificate is refused: libpq only says that it is."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import suppress

_REQUEST = struct.pack("!ii", 8, 80877103)


def refusal(host: str, port: int, authority: str, timeout: float) -> str:
    """What is wrong with the certificate in OpenSSL's words, "" if it cannot be told. `authority` is a file, "" for the
    system's authorities."""
    with suppress(OSError, ValueError), socket.create_connection((host, port), timeout=timeout or None) as plain:
        plain.sendall(_REQUEST)
        if plain.recv(1) != b"S":
            return ""
        context = ssl.create_default_context(cafile=authority or None)
        context.check_hostname = False
        context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message)
    return ""
