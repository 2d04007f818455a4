"""Views that show tables with old names beside the new ones; for destinations that can hold some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from instep.destinations.base import Ref
from instep.schema.old_names import View


@runtime_checkable
class HoldsViews(Protocol):
    """A destination with views of ours. What alters a table there changes its views in step."""

    @property
    def why_no_views(self) -> str:
        """Why this destination's catalog cannot hold views; "" if it can."""
        ...

    def views(self) -> Mapping[Ref, View]:
        """All that are ours."""
        ...

    def put_view(self, view: View, fence: int) -> None:
        """Makes a view of a claimed table, or changes it where it differs, by the table's columns as they are now;
        those that the table has not are left out. Conflict if the name is taken by what is not ours, Fenced if a later
        run has claimed the table."""
        ...

    def drop_view(self, ref: Ref) -> None:
        """Nothing if there is no view of ours of this name."""
        ...
