"""Skip tables that need no load: source and destination can prove that they have the same rows.

The proof is recorded with the table's last load. It names the version of the rows at the source, the state of the table
at the destination, and the rules by which the rows were loaded. If all three are the same now, the table is neither
claimed nor read nor committed to. Whatever cannot be compared counts as changed (docs/adr/0039-unchanged-tables.md).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from instep import __version__
from instep.destinations.base import Ref
from instep.model import Run
from instep.schema.planning.projection import ColumnRead, TableRead
from instep.sources.base import Snapshot, Versioned
from instep.stage.spec import InvalidValue
from instep.store.catalogs.loaded import CursorRecord
from instep.sync.context import SyncContext
from instep.sync.loading.load_table import TableResult
from instep.sync.loading.table_load import Load


@dataclass(frozen=True)
class LoadRules:
    """The rules that decide, beside the settings, how the rows of a table are loaded: see `Load`."""

    ref: Ref
    on_invalid_value: InvalidValue
    holds: Mapping[str, tuple[str, str]]
    extra: tuple[ColumnRead, ...]
    only_copies: tuple[str, ...]


@dataclass(frozen=True)
class UnchangedTables:
    """The proofs of one pass over these tables, read at its snapshot."""

    context: SyncContext
    snapshot: Snapshot
    reads: Sequence[TableRead]

    @cached_property
    def _records(self) -> Mapping[Ref, CursorRecord]:
        return self.context.store.cursors.of(self.context.name)

    @cached_property
    def _last_dead(self) -> int:
        return self.context.store.runs.last_dead(self.context.name)

    @cached_property
    def versions(self) -> Mapping[Ref, str]:
        """The versions of the source tables."""
        comparable = self.context.destination.capabilities.versions and not self.context.shard
        if not comparable or not isinstance(self.snapshot, Versioned):
            return {}
        own = [r for r in self.reads if not r.where]  # a filter may look at the clock, or at other tables
        proofs = ((r.source.ref, self._known(r)) for r in own)
        before = {ref: proof["source"] for ref, proof in proofs if proof.get("maker") == self._maker}
        return self.snapshot.versions(own, before)

    @property
    def _maker(self) -> str:
        """The release and the kind of source that give versions and rules their form."""
        return f"{__version__} {self.context.source.kind}"

    def _known(self, read: TableRead) -> Mapping[str, str]:
        record = self._records.get(read.table.ref)
        return json.loads(record.proof) if record and record.proof else {}

    def holds(self, read: TableRead, rules: LoadRules) -> bool:
        """Return whether the destination has the rows of this table. Not after a run that has died since its load: it
        may have begun something."""
        proof = self._known(read)
        if proof.get("maker") != self._maker or self._records[read.table.ref].fence <= self._last_dead:
            return False
        if proof["source"] != self.versions.get(read.source.ref) or proof["rules"] != self._digest(read, rules):
            return False
        state = self.context.destination.schema.state(rules.ref, version=True)
        return state is not None and proof["destination"] == _commit(state.run, state.fence, state.version)

    def _digest(self, read: TableRead, rules: LoadRules) -> str:
        salt = blake2b(self.context.salt).digest()
        settings = self.context.settings(read.table).model_dump_json()  # the text of a section hides its values
        parts = (read, rules, settings, self.context.naming.prefix)
        return blake2b(repr(parts).encode() + salt, digest_size=16).hexdigest()

    def proof(self, load: Load) -> str:
        """Return a later proof that a table whose load is planned has not changed since, but for the state of the
        destination; "" if nothing can prove it, or a log or a stream does."""
        version = self.versions.get(load.read.source.ref)
        if load.notes or load.choice.mode in ("cdc", "stream") or not version:
            return ""
        rules = LoadRules(load.ref, load.on_invalid_value, load.holds, load.extra, load.only_copies)
        return json.dumps({"maker": self._maker, "source": version, "rules": self._digest(load.read, rules)})


def proofs(run: Run, done: Collection[TableResult]) -> dict[Ref, str]:
    """Return the proofs of these tables, as this run has loaded them. A table with something to report has none: the
    next load reports it again. The state of the destination is that of the load's own commit: what others have
    committed since has another one."""
    proofs_by_ref = {}
    for result in done:
        clean = result.error is None and not (result.invalid_values or result.casts or result.unread)
        if clean and result.load.proof and result.version:
            state = _commit(run.id, run.fence, result.version)
            proofs_by_ref[result.load.table.ref] = json.dumps({**json.loads(result.load.proof), "destination": state})
    return proofs_by_ref


def _commit(run: str, fence: int, version: str) -> str:
    """Return what tells the state of a table from all others: a table that was made anew counts its versions anew."""
    return f"{run}/{fence}/{version}"
