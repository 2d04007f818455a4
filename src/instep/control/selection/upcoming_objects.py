"""Objects that are not accepted yet: what the next sync accepts by the policy and the answers of today."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from instep.control.selection.selections import SwitchedConnection
from instep.model import Review
from instep.schema.changes.describe import ColumnAdded, SchemaAdded, TableAdded, change_from_dict
from instep.schema.policy.new_objects import FirstLook, Object
from instep.schema.policy.policy import LISTED_OFF, OPTION, decide, is_by_policy, is_listed_off
from instep.schema.selection.overrides import Switch
from instep.store.first_look import first_look

Addition = SchemaAdded | TableAdded | ColumnAdded
_POLICY = ("preset ", "rule ", "override ", OPTION)
"""Beginnings of `Review.rule` where the policy decided, which may decide otherwise by now."""
_WAITS = "is not accepted"
"""The end of the reason where an addition waits for its schema."""


@dataclass(frozen=True)
class UpcomingObjects:
    place: SwitchedConnection
    first: FirstLook | None
    """None once something is accepted."""
    switches: Mapping[Object, Switch]
    reviews: Mapping[Object, Review]
    """Standing additions."""
    switched_on: frozenset[tuple[str, str]]
    """Tables at the source that a person has switched on by name."""
    schemas_accepted: frozenset[str]
    _decided: dict[Object, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, place: SwitchedConnection, switches: Mapping[Object, Switch], reviews: Mapping[Object, Review]
    ) -> UpcomingObjects:
        """Return the objects that are to come for a connection, from the store alone."""
        begun = place.store.accepted.latest(place.connection) is not None
        first = None if begun else first_look(place.store, place.connection, place.source, place.identity)
        on = frozenset(t.ref for t in place.source.tables if t.path in place.now.on and t.ref not in place.denied)
        accepted = frozenset(t.schema for t in place.accepted.tables if not t.retained)
        return cls(place, first, switches, reviews, on, accepted)

    def left_out(self, place: Object, change: Addition) -> str:
        """Return why the next sync leaves the object out; "" if it accepts it or has it already."""
        if place not in self._decided:
            self._decided[place] = self._left_out(place, change)
        return self._decided[place]

    def _left_out(self, place: Object, change: Addition) -> str:
        switch, review = self.switches.get(place), self.reviews.get(place)
        if self._is_accepted(place) or self._comes_for_tables(place):
            return ""
        if review is not None and review.status == "rejected":
            return f"rejected by {review.decided_by}"
        if switch is not None and switch.enabled is not None:
            return ""
        if self._stays_with_schema(place):
            return f"schema {place[0]!r} {_WAITS}"
        if review is not None and review.status == "approved":
            return ""
        if switch is not None and switch.listed_off:
            return review.why if review is not None and is_listed_off(review.why) else LISTED_OFF
        if review is not None:
            # the policy may have changed since; what else holds an object back holds it still
            again = review.rule.startswith(_POLICY) and (is_by_policy(review.why) or review.why.endswith(_WAITS))
            if is_listed_off(review.why) or not again:
                return "" if review.action == "apply" else review.why
            return self._by_policy(change_from_dict(review.change))
        if self.first is not None and self.first.lets_in(change):
            return ""
        return self._by_policy(change) if self._is_undecided(place) else ""

    def has_late_columns(self, ref: tuple[str, str]) -> bool:
        """Return whether a table that the first look saw has columns that came before its first sync."""
        return ref in self._late_tables

    @cached_property
    def _late_tables(self) -> frozenset[tuple[str, str]]:
        born = self.first.born if self.first else ()
        return frozenset(place[:2] for place in born if self._is_born_late(place))

    def _is_born_late(self, place: Object) -> bool:
        born = self.first.born if self.first else frozenset()
        return bool(place[2]) and place in born and (*place[:2], "") not in born

    def _comes_for_tables(self, place: Object) -> bool:
        """Return whether a schema comes in because tables of it are switched on: also a rejected one, if they are not
        rejected themselves."""
        if place[1]:
            return False
        on = [ref for ref in self.switched_on if ref[0] == place[0]]
        return any(not self._is_rejected(place) or not self._is_rejected((*ref, "")) for ref in on)

    def _stays_with_schema(self, place: Object) -> bool:
        """Return whether a table stays out with its rejected schema: once that comes in for other tables, an approved
        one comes with it."""
        schema = place[0], "", ""
        if not place[1] or place[2] or self._is_accepted(schema) or not self._is_rejected(schema):
            return False
        review = self.reviews.get(place)
        return review is None or review.status != "approved" or not self._comes_for_tables(schema)

    def _is_rejected(self, place: Object) -> bool:
        review = self.reviews.get(place)
        return review is not None and review.status == "rejected"

    def _is_accepted(self, place: Object) -> bool:
        schema, name, column = place
        if not name:
            return schema in self.schemas_accepted
        table = self.place.accepted.get((schema, name))
        if table is None or table.retained or not column:
            return table is not None and not table.retained
        return column in table.by_name and not table.by_name[column].retained

    def _by_policy(self, change: object) -> str:
        assert isinstance(change, Addition)
        decision = decide(change, self.place.policy, tags=self.place.tags)
        return "" if decision.applied else decision.why

    def _is_undecided(self, place: Object) -> bool:
        """Return whether an object is decided only when it is read: a column in a new table comes with it."""
        schema, name, column = place
        if not name:
            return True
        closed = schema in self.place.now.schemas_off or ".".join(filter(None, place[:2])) in self.place.now.off
        if column:
            return (closed and self._is_accepted((schema, name, ""))) or self._is_born_late(place)
        return closed or self.first is not None
