"""Operations on the project of this machine, carried out in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.operations.registry import spec_for, work_of
from instep.operations.spec import Preview, Request, Work

if TYPE_CHECKING:
    from instep.bootstrap import App


class OperationsHere:
    def __init__(self, app: App) -> None:
        self.app = app

    def prepare(self, connection: str, request: Request) -> Preview:
        return self._work(request).prepare(self.app.pipe(connection), request)

    def execute(self, preview: Preview, allow: Sequence[str] = ()) -> Mapping[str, Any]:
        return self._work(preview.request).execute(self.app.pipe(preview.connection), preview, tuple(allow))

    def _work(self, request: Request) -> Work:
        work: Work = work_of(spec_for(request))()
        return work
