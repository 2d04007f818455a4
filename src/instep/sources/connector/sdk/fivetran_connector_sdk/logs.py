"""Log lines of a connector, in both vocabularies."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum

from . import outlet


class Logging:
    """`fine` is debug, `severe` is error."""

    class Level(IntEnum):
        FINE = 1
        DEBUG = 1
        INFO = 2
        WARNING = 3
        SEVERE = 4
        ERROR = 4
        CRITICAL = 5

    LOG_LEVEL = Level.INFO

    @staticmethod
    def debug(message: str) -> None:
        _log("debug", message)

    @staticmethod
    def fine(message: str) -> None:
        _log("debug", message)

    @staticmethod
    def info(message: str) -> None:
        _log("info", message)

    @staticmethod
    def warning(message: str) -> None:
        _log("warning", message)

    @staticmethod
    def error(message: str, exception: BaseException | None = None) -> None:
        _log("error", message, exception)

    @staticmethod
    def severe(message: str, exception: BaseException | None = None) -> None:
        _log("error", message, exception)

    @staticmethod
    def critical(message: str, exception: BaseException | None = None) -> None:
        _log("error", message, exception)


def _log(level: str, message: object, exception: BaseException | None = None) -> None:
    text = str(message)
    if exception is not None:
        text += "\n" + "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    if outlet.is_open():
        outlet.current().tell({"frame": "log", "level": level, "message": text})
    else:
        print(f"{level.upper()} {text}", file=sys.stderr, flush=True)
