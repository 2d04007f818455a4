# ruff: noqa: S608 - columns are numbered, values are numbers of ours
"""Staged rows meet the versions of a table's rows: which end, which begin, which only get what they lacked. Pure SQL.

Columns are c0, c1, ... in the order of `columns`. The tables are DuckDB's: `staged` (one row a key, `n` its number),
`known` (keys of the source) and `there` (the versions that matter: current ones, `open`, and ended ones that may come
back). `met` is made from them, `written` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from instep.destinations.base import Merge
from instep.stage.spec import SystemColumns

COUNTS = ("begun", "changed", "filled", "gone", "returned")
"""What becomes of a key: its first version, another one, values in the current one, an end. `returned`: its versions
have ended, the source has it, and its row was not read."""


@dataclass(frozen=True)
class VersionPlan:
    """One load's rows and versions. `again`: columns whose values are read for the first time since they were accepted
    or switched on, `filled` those that wait for a backfill: their differences make no version (`filled`: of rows
    without a value). `cursor` orders changes, "" without: a row whose cursor stands still has not changed, so a value
    that it lacked is filled in. `at` begins new versions, `synced` is the run's time (microseconds since 1970 UTC)."""

    columns: tuple[str, ...]
    how: Merge
    system: SystemColumns
    cursor: str = ""
    again: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    at: int = 0
    synced: int = 0

    def column(self, name: str) -> str:
        return f"c{self.columns.index(name)}"

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Columns that are compared."""
        s = self.system
        out = {s.synced, s.deleted, s.valid_from, s.valid_to, s.current, *self.how.key, *self.how.unread}
        return tuple(c for c in self.columns if c not in out)

    @property
    def key(self) -> list[str]:
        return [self.column(k) for k in self.how.key]

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.{k} = {b}.{k}" for k in self.key)

    @property
    def older(self) -> str:
        """The numbers of staged rows that another one of their key supersedes: the highest cursor, then the last."""
        order = f"{self.column(self.cursor)} DESC NULLS LAST, n DESC" if self.cursor else "n DESC"
        ranked = (
            f"SELECT n, row_number() OVER (PARTITION BY {', '.join(self.key)} ORDER BY {order}) AS place FROM staged"
        )
        return f"SELECT n FROM ({ranked}) WHERE place > 1"

    @property
    def met(self) -> str:
        """`what` becomes of each version: `n` is the number of the staged row that it met, `known` tells a current one
        whose key the source has. Values of versions that stay are left out."""
        known = f" LEFT JOIN known AS k ON {self.same_key('t', 'k')}" if self.how.keys or self.how.requested else ""
        join = f"there AS t LEFT JOIN staged AS s ON {self.same_key('t', 's')}{known}"
        here = "t.open AND coalesce(k.here, false)" if self.how.keys else "false"
        found = f"SELECT t.*, CASE WHEN t.open THEN s.n END AS n, {self._what} AS what, {here} AS known FROM {join}"
        columns = ", ".join(f"CASE WHEN what <> 'same' THEN c{i} END AS c{i}" for i in range(len(self.columns)))
        return f"SELECT what, n, known, {columns} FROM ({found}) WHERE what <> 'same' OR n IS NOT NULL OR known"

    @property
    def _what(self) -> str:
        here = "k.here" if self.how.keys or self.how.requested else "false"
        cases = [
            ("NOT t.open", f"CASE WHEN s.n IS NULL AND {here} THEN 'returned' ELSE 'same' END"),
            (
                "s.n IS NOT NULL",
                f"CASE WHEN {self._late} THEN 'same' WHEN {self._changed} THEN 'changed' "
                f"WHEN {self._differs} THEN 'filled' ELSE 'same' END",
            ),
            (self._gone, "'gone'"),
        ]
        return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " ELSE 'same' END"

    @property
    def _late(self) -> str:
        if not self.how.cursor:
            return "false"
        cursor = self.column(self.how.cursor)
        return f"coalesce(s.{cursor} < t.{cursor}, false)"

    @property
    def _gone(self) -> str:
        """Of a version without a staged row."""
        if self.how.deletes == "ignore":
            return "false"
        if self.how.keys:
            return "k.here IS NULL"
        return "k.here" if self.how.requested else str(self.how.complete).lower()

    @property
    def _differs(self) -> str:
        return self._any([self._distinct(c) for c in self.values])

    @property
    def _changed(self) -> str:
        notes = {self.system.meta, self.system.extra}
        own = (c for c in self.values if c not in notes and c not in self.again)
        return self._any([f"({self._distinct(c)}{self._unless_filled(c)})" for c in own])

    def _distinct(self, name: str) -> str:
        return f"t.{self.column(name)} IS DISTINCT FROM s.{self.column(name)}"

    def _unless_filled(self, name: str) -> str:
        has = f"t.{self.column(name)} IS NOT NULL"
        if name in self.filled:
            return f" AND {has}"
        if not self.cursor or name == self.cursor:
            return ""
        return f" AND ({has} OR {self._distinct(self.cursor)})"

    @staticmethod
    def _any(conditions: Sequence[str]) -> str:
        return " OR ".join(conditions) or "false"

    @property
    def returned(self) -> str:
        """Keeps of the ended versions whose key is back the last one of keys without a current version (`stands`)."""
        begin = self.column(self.system.valid_from)
        stands = f"SELECT 1 FROM stands AS c WHERE {self.same_key('c', 'met')}"
        same = self.same_key("o", "met")
        later = f"SELECT 1 FROM met AS o WHERE o.what = 'returned' AND o.{begin} > met.{begin} AND {same}"
        return f"DELETE FROM met WHERE what = 'returned' AND (EXISTS ({stands}) OR EXISTS ({later}))"

    @property
    def counts(self) -> str:
        begun = "SELECT 'begun' AS what FROM staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        return f"SELECT what, count(*) FROM (SELECT what FROM met UNION ALL {begun}) GROUP BY what"

    @property
    def absent(self) -> str:
        """Counts the keys of the source that neither a version nor a staged row has."""
        begun = "SELECT 1 FROM staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        there = f"(SELECT count(*) FROM met WHERE known OR what = 'returned') + (SELECT count(*) FROM ({begun}))"
        return f"SELECT greatest(count(*) - ({there}), 0) FROM known"

    @property
    def written(self) -> str:
        """The rows to merge by key and begin: ended versions, begun ones, current ones that got values."""
        unread = set(self.how.unread) & set(self.columns)
        here = {c: f"s.{self.column(c)}" for c in self.columns}
        values = here | {c: f"m.{self.column(c)}" for c in unread}
        old = {c: f"m.{self.column(c)}" for c in self.columns}
        alone = "staged AS s WHERE NOT EXISTS (SELECT 1 FROM met WHERE met.n = s.n)"
        pairs = "met AS m JOIN staged AS s ON m.n = s.n WHERE m.what ="
        begin = old[self.system.valid_from]
        parts = [
            (here | self._open(self._moment(self.at)), alone),
            (values | self._open(self._moment(self.at)), f"{pairs} 'changed'"),
            (values | self._open(begin), f"{pairs} 'filled'"),
            (old | self._ended, "met AS m WHERE m.what IN ('changed', 'gone')"),
        ]
        return " UNION ALL ".join(
            f"SELECT {', '.join(f'{row[c]} AS c{i}' for i, c in enumerate(self.columns))} FROM {source}"
            for row, source in parts
        )

    def _open(self, begin: str) -> dict[str, str]:
        s = self.system
        return {s.valid_from: begin, s.valid_to: "NULL", s.current: "true", s.deleted: "false"}

    @property
    def _ended(self) -> dict[str, str]:
        s = self.system
        return self._stamp | {s.valid_to: self._moment(self.at), s.current: "false", s.deleted: "m.what = 'gone'"}

    @property
    def _stamp(self) -> dict[str, str]:
        return {self.system.synced: self._moment(self.synced)}

    @staticmethod
    def _moment(at: int) -> str:
        return f"make_timestamptz({at})"
