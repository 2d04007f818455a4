"""An S3 server on a free loopback port, for the tests: prints the port, and serves until it is ended.

Requests take turns, so that of two conditional writes to one name only one succeeds, as object stores promise it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        return


_answer = create_backend_app("s3")
_turn = threading.Lock()


def one(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    with _turn:
        return list(_answer(environment, start))


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, one, threaded=True, request_handler=_Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()
