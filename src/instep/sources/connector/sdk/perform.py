"""The program of the child process: it loads the connector's object and does what the first line of the pipe asks for.

python perform.py FRAMES ANSWERS FOLDER     two file descriptors, and the folder with connector.py
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from fivetran_connector_sdk import Connector, outlet
from fivetran_connector_sdk.connector import failure
from fivetran_connector_sdk.unrun import check_calls, watch


def main(frames: int, answers: int, folder: str) -> None:
    for descriptor in (frames, answers):
        os.set_inheritable(descriptor, False)  # programs that the connector starts have no part in this
    wire = outlet.Pipes(frames, answers)
    request = wire.read()
    out = outlet.use(outlet.Outlet(wire))
    sys.argv[:] = [os.path.join(folder, "connector.py")]
    sys.path.insert(0, folder)
    watch(folder)
    try:
        connector = _loaded(folder)
    except BaseException as error:
        out.end(failure(error))
        return
    if request["command"] == "update":
        try:
            check_calls(folder)
        except TypeError as error:
            out.end(failure(error))
            return
        connector.sync(out, request)
    else:
        _answer(connector, out, request)


def _loaded(folder: str) -> Connector:
    connector = getattr(importlib.import_module("connector"), "connector", None)
    if not isinstance(connector, Connector):
        raise TypeError(f"{folder}/connector.py has no object `connector` of the class Connector")
    return connector


def _answer(connector: Connector, out: outlet.Outlet, request: dict[str, Any]) -> None:
    try:
        configuration = request.get("configuration") or {}
        if request["command"] == "schema":
            answer: Any = [t.document() for t in connector.tables(configuration).values()]
        elif request["command"] == "form":
            answer = connector.form().document()
        else:
            answer = connector.form().outcomes(configuration)
        out.end({"frame": "answer", "said": answer})
    except BaseException as error:
        out.end(failure(error))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join(5)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
