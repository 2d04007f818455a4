"""A table in the lake with rows and held values, as syncs leave them, made without Spark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from instep.destinations.base import Commit, Ref
from instep.schema.planning.naming import destination_ref
from instep.stage.conform import QuarantinedValue
from instep.stage.quarantine import QuarantineFile
from instep.stage.spec import StageColumn, StageSpec, SystemColumns
from instep.sync.quarantine.replay import Replayed, replay
from lake import stage
from quarantined import entries_of
from sync_world import PREFIX, World

DAY = 86_400_000_000
FIRST_DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=20)
START = int(FIRST_DAY.timestamp() * 1e6)
Row = dict[str, Any]


def note(*names: str, reason: str = "not a number") -> str:
    """What `_instep_meta` says of nulled columns."""
    changes = [{"field": n, "change": "nulled", "reason": reason} for n in names]
    return json.dumps({"changes": changes}, separators=(",", ":"))


@dataclass
class HeldWorld:
    """Over a world whose table `name` is accepted and in the lake."""

    world: World
    name: str = "t"
    runs: list[str] = field(default_factory=list)

    @property
    def ref(self) -> Ref:
        return destination_ref(self.world.accepted(self.name), self.world.context.naming)

    @property
    def path(self) -> str:
        return self.world.accepted(self.name).path

    def run_done(self) -> tuple[str, int]:
        """(id, fence) of a run that is over and well."""
        run = self.world.store.runs.claim("shop", "sync")
        self.world.store.runs.finish(run, "done")
        return run.id, run.fence

    def load(self, *rows: Row) -> None:
        """More rows, by destination column."""
        run, fence = self.run_done()
        destination = self.world.destination
        destination.write.claim(self.ref, fence)
        destination.write.append(self.ref, [stage(destination, self.ref, rows)], Commit(run, fence, cursor='{"at":1}'))

    def hold(self, *held: QuarantinedValue, day: int = 0, holds: Any = None, run: str = "", hashed: str = "") -> None:
        """Values held by a run on a day after START."""
        table, target = self.world.accepted(self.name), self.world.destination.write.target(self.ref)
        columns = tuple(
            StageColumn(c.alias, c.type, c.type, c.name, key=c.key, hashed=c.name == hashed) for c in table.columns
        )
        spec = StageSpec(
            "0", columns, SystemColumns(), target.schema, target.location, target.quarantine,
            run or self.run_done()[0], START + day * DAY, io=target.io, path=table.path, holds=holds or {},
        )  # fmt: skip
        file = QuarantineFile(spec, 0, 0)
        file.add(held)
        file.close()

    def value(self, key: Any, original: str | None, column: str = "a", **more: Any) -> None:
        self.hold(QuarantinedValue(json.dumps({"id": str(key)}), column, original, "not a number"), **more)

    def row(self, original: dict[str, str | None], **more: Any) -> None:
        """A row that was refused."""
        texts = json.dumps(original)
        self.hold(QuarantinedValue(json.dumps({"id": original["id"]}), "", texts, "NULL in the key (id)"), **more)

    def replay(self, **options: Any) -> Replayed:
        [done] = replay(self.world.context, **options)
        assert not done.error, done.error
        return done

    def statuses(self) -> dict[str | None, str]:
        """Status by original."""
        return {e.original: e.status for e in entries_of(self.world.context)}

    def rows(self) -> list[tuple[Any, ...]]:
        """Values with the note, deleted rows included."""
        columns = [c.alias for c in self.world.accepted(self.name).columns]
        return self.world.rows(self.name, *columns, f"{PREFIX}meta", deleted=True)


def held_world(world: World, *columns: str) -> HeldWorld:
    """`columns`: those of the table t after `id int primary key`."""
    world.run(f"CREATE TABLE t ({', '.join(['id int PRIMARY KEY', *columns])})")
    world.evolve()
    return HeldWorld(world)
