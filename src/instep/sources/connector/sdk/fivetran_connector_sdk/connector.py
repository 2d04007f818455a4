"""The object that `connector.py` of a connector holds."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from . import alone, outlet
from .configuration_form import ConfigurationForm
from .declared import Named, TableSpec, tables_of
from .logs import Logging
from .operations import SyncFailed
from .shown import cut

_LONGEST = 1 << 20


class Connector:
    """`update(configuration, state)` sends rows; `schema(configuration)` declares tables; `configuration_form()` builds
    a setup form."""

    def __init__(
        self,
        update: Callable[..., Any],
        schema: Callable[..., Any] | None = None,
        configuration_form: Callable[..., Any] | None = None,
    ) -> None:
        if not callable(update):
            raise TypeError("Connector(update=...): update has to be a function")
        self.update_method, self.schema_method, self.configuration_form_method = update, schema, configuration_form
        self.configuration: dict[str, Any] | None = None
        self.state: dict[str, Any] | None = None

    def tables(self, configuration: Mapping[str, Any]) -> dict[Named, TableSpec]:
        """Return the declarations of schema(); nothing without one."""
        return tables_of(at_once(self.schema_method(dict(configuration)), "schema")) if self.schema_method else {}

    def form(self) -> ConfigurationForm:
        method = self.configuration_form_method
        returned = at_once(method(), "configuration_form") if method else ConfigurationForm()
        if not isinstance(returned, ConfigurationForm):
            raise TypeError("configuration_form() has to return a ConfigurationForm")
        return returned

    def sync(self, out: outlet.Outlet, settings: Mapping[str, Any]) -> None:
        """Declare the tables, then run update() to its end; whatever ends it is told."""
        configuration, state = dict(settings.get("configuration") or {}), dict(settings.get("state") or {})
        try:
            out.declare(self.tables(configuration))
            self._check_signature(configuration, state)
            run_through(self.update_method(configuration=configuration, state=state))
            out.check_lost()
            out.end({"frame": "end"})
        except BaseException as error:
            out.end(failure(error))

    def _check_signature(self, configuration: dict[str, Any], state: dict[str, Any]) -> None:
        """Raise TypeError where update() cannot be called by the names that it is called with."""
        try:
            signature = inspect.signature(self.update_method, follow_wrapped=False)  # the wrapper is what is called
        except ValueError:
            return  # some callables of C have none
        try:
            signature.bind(configuration=configuration, state=state)
        except TypeError as error:
            raise TypeError(
                f"update{signature} is called with the arguments `configuration` and `state`, by these names: {error}"
            ) from None

    def debug(
        self,
        project_path: str | None = None,
        configuration: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        *more: Any,
        **others: Any,
    ) -> None:
        """Run one sync of a connector that was started by itself, and prints what it sends. Does nothing where it
        is run for a sync already, as when a connector calls this whenever it is imported."""
        if outlet.is_open():
            Logging.debug("debug() and run() do nothing here: the sync calls update() itself")
            return
        alone.sync(self, project_path, configuration, state)

    def run(
        self,
        port: int = 50049,
        configuration: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        log_level: Any = None,
        **others: Any,
    ) -> None:
        """Run `debug`: there is no server to start."""
        self.debug(None, configuration, state)


def run_through(result: Any) -> None:
    """Run what update() returned to its end if it is a generator; what it yields is ignored. Raises TypeError for what
    would never run: a coroutine, and a generator that update() yields instead of running it."""
    at_once(result, "update")
    if not inspect.isgenerator(result):
        return
    for yielded in result:
        if inspect.isgenerator(yielded) or _is_async(yielded):
            name = getattr(yielded, "__name__", "it")
            if inspect.isgenerator(yielded) or inspect.iscoroutine(yielded):
                yielded.close()
            raise TypeError(f"update() yields {name}(...), which nobody runs: write `yield from {name}(...)`")


def at_once(result: Any, function: str) -> Any:
    """Return the result of a function of the connector. Raises TypeError if it is a coroutine: nobody awaits it."""
    if _is_async(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(
            f"{function}() is an async function, which nobody awaits: write `def {function}(...)`, and in it "
            "asyncio.run(...) for what is asynchronous"
        )
    return result


def _is_async(value: Any) -> bool:
    return inspect.isawaitable(value) or inspect.isasyncgen(value)


def failure(error: BaseException) -> dict[str, Any]:
    """Return the frame that tells why a sync ended."""
    if isinstance(error, SyncFailed):
        return {"frame": "error", "kind": "told", "message": _cut(error), "trace": _cut(error.trace)}
    if isinstance(error, SystemExit):
        return {"frame": "error", "kind": "exit", "message": _cut(error.code), "trace": _trace(error)}
    kind = "memory" if isinstance(error, MemoryError) else "raised"
    message = _cut(f"{type(error).__name__}: {error}")
    return {"frame": "error", "kind": kind, "message": message, "trace": _trace(error)}


def _cut(text: object) -> str:
    return cut(str(text), _LONGEST)


def _trace(error: BaseException) -> str:
    """Return the traceback; of a very long one the last whole lines."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return text if len(text) <= _LONGEST else text[-_LONGEST:].partition("\n")[2]
