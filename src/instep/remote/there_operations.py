"""Operations at a server: a worker finds out what one does, and another one carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.operations.registry import spec_for
from instep.operations.spec import Preview, Request
from instep.remote.work import Works


@dataclass(frozen=True)
class OperationsThere:
    works: Works

    def prepare(self, connection: str, request: Request) -> Preview:
        found = self._done(connection, request, {"preview": True})
        bound = type(request).of_options(found["request"])
        return Preview(connection, bound, found["document"], found["lines"], found["detail"])

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        return self._done(preview.connection, preview.request, {"allow": list(allow)} if allow else {})

    def _done(self, connection: str, request: Request, more: Mapping[str, Any]) -> Mapping[str, Any]:
        _, _, path = spec_for(request).route.partition("{connection}/")
        return self.works.done(connection, path, {**request.options(), **more}).result
