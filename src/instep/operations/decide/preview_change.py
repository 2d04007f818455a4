"""Try a waiting change on a copy of the destination's tables, and say how their rows and the models' answers differ.

Nothing of the destination is written: the copy names the same files and is thrown away. The job's result has the
columns and counts of each table before and after, and what each model answers on both.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.operations.spec import OperationSpec, Request
from instep.operations.values import Name


@dataclass(frozen=True)
class PreviewChangeRequest(Request):
    """The change to try."""

    change: Name
    """The change's id, c-..."""


SPEC = OperationSpec(
    "preview_change",
    role="operator",
    route="POST /connections/{connection}/changes/preview",
    request=PreviewChangeRequest,
    result="instep.plans.preview_change:ChangePreview",
    work="instep.plans.preview_change:PreviewChange",
)
