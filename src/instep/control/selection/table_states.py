"""The states of tables that people look through: new, excluded, unsupported, enabled, disabled, switched.

They are found by names alone, so that a catalog of 200,000 columns is sorted into its states within one request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from instep.control.selection.listing import ObjectListing
from instep.control.selection.partial import PartialSelection
from instep.operations.queries.schema_tree import SelectionState
from instep.schema.catalog.catalog import Table
from instep.schema.selection.selection import is_on
from instep.store.catalog_documents import Ref


@dataclass(frozen=True)
class TableStates:
    """The states of one connection's tables."""

    part: PartialSelection
    listing: ObjectListing

    def table(self, ref: Ref) -> Table:
        """Return the table as the source has it, else as it is accepted; without columns if it may not be read."""
        place = self.listing.place
        return place.source.get(ref) or place.accepted.get(ref) or Table(*ref, ())

    def sorted_into(self, refs: Collection[Ref]) -> Mapping[SelectionState, frozenset[Ref]]:
        """Return these tables by their states, of which one may have several."""
        refs_by_state: dict[SelectionState, set[Ref]] = {"all": set(refs)}
        for ref in refs:
            for state in self._of(ref):
                refs_by_state.setdefault(state, set()).add(ref)
        return {state: frozenset(own) for state, own in refs_by_state.items()}

    def _of(self, ref: Ref) -> Iterator[SelectionState]:
        yield "enabled" if self.listing.table(self.table(ref)).enabled else "disabled"
        if ref in self._switched:
            yield "switched"
        if ref in self.part.source.tables and (not self.is_accepted(ref) or self.new_columns(ref)):
            open_to = is_on(self.listing.place.now, self.table(ref))[0] and not self.problem(ref)
            if open_to and (*ref, "") not in self._rejected:
                yield "new"
        if self.is_excluded(ref) or self.excluded_columns(ref):
            yield "excluded"
        if ref in self._closed:
            yield "unsupported"

    def is_listed(self, ref: Ref) -> bool:
        """Return True if the columns of the table are known, at the source or as they are accepted."""
        return ref in self.part.source.tables or ref in self.part.accepted.tables

    def is_accepted(self, ref: Ref) -> bool:
        """Return True if the table is accepted, and not only retained at the destination."""
        outline = self.part.accepted.outlines.get(ref)
        return outline is not None and not outline.retained

    def new_columns(self, ref: Ref) -> frozenset[str]:
        """Return the columns of an accepted table that are not accepted, and that nothing keeps out."""
        if not self.is_accepted(ref):
            return frozenset()
        more = self.part.source.names.get(ref, frozenset()) - self.part.accepted.names[ref]
        if not more:
            return more
        now, path = self.listing.place.now, self.table(ref).path
        out = {name for name in more if f"{path}.{name}" in now.off or (*ref, name) in self._rejected}
        return more - out - self.excluded_columns(ref)

    def is_excluded(self, ref: Ref) -> bool:
        """Return True if the project file keeps the table out: by a pattern, by its kind or by name."""
        off = any(self._is_switched_off(one) for one in ((*ref, ""), (ref[0], "", "")))
        return not off and not is_on(self.listing.place.now, self.table(ref))[0]

    def excluded_columns(self, ref: Ref) -> frozenset[str]:
        """Return the columns that the project file keeps out by a pattern or by name."""
        place = self.listing.place
        named = self._named_off.get(ref, frozenset())
        matched = self._matching.get(ref, frozenset())
        if not (named or matched):
            return matched
        path = self.table(ref).path
        return frozenset(one for one in named | matched if f"{path}.{one}" not in place.now.on)

    def problem(self, ref: Ref, column: str = "") -> str:
        """Return why a table or a column cannot be replicated; "" if it can."""
        path = (*ref, column) if column else ref
        flaw = "" if self._has_name(ref, column) else self.part.source.flaws.get(path, "")
        return self.listing.place.denied.get(path) or flaw

    def problems(self, ref: Ref) -> int:
        """Return how many columns of a table cannot be replicated."""
        return self._closed.get(ref, 0)

    @cached_property
    def _closed(self) -> Counter[Ref]:
        """By table that is not supported as a whole or in part: the number of such columns."""
        flaws = (path for path in self.part.source.flaws if not self._has_name((path[0], path[1]), "".join(path[2:])))
        counter: Counter[Ref] = Counter()
        for path in {*self.listing.place.denied, *flaws}:
            counter[path[0], path[1]] += len(path) > 2
        return counter

    def _has_name(self, ref: Ref, column: str) -> bool:
        """Return True for what is accepted, which has a name at the destination."""
        names = self.part.accepted.names.get(ref)
        return names is not None and (not column or column in names)

    @cached_property
    def _matching(self) -> Mapping[Ref, frozenset[str]]:
        return self.part.source.matching(self.listing.place.now.exclude_columns)

    @cached_property
    def _named_off(self) -> Mapping[Ref, frozenset[str]]:
        """Columns that the file switches off by name."""
        off = self.listing.place.file.off
        tables = {path.rpartition(".")[0] for path in off}
        near = [ref for ref in self.part.source.tables if ".".join(filter(None, ref)) in tables] if off else []
        return {ref: frozenset(self._off_of(ref, off)) for ref in near}

    def _off_of(self, ref: Ref, off: Collection[str]) -> Iterable[str]:
        path = ".".join(filter(None, ref))
        return (name for name in self.part.source.names[ref] if f"{path}.{name}" in off)

    @cached_property
    def _switched(self) -> frozenset[Ref]:
        return frozenset(switch.ref for switch in self.listing.switches.values() if switch.is_chosen)

    @cached_property
    def _rejected(self) -> frozenset[tuple[str, str, str]]:
        return frozenset(about for about, one in self.listing.reviews.items() if one.status == "rejected")

    def _is_switched_off(self, about: tuple[str, str, str]) -> bool:
        switch = self.listing.switches.get(about)
        return switch is not None and switch.enabled is False
