"""A table of a lake that grows by many small loads, and is maintained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from instep.destinations.base import Commit, Maintained, MaintenanceSpec, Merge
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.schema.changes.kinds import ColumnAdded, ColumnRemoved
from instep.schema.maintenance import Maintenance
from instep.schema.planning.step import UndropColumn, step
from lake import ID, REF, column, create, rows_of, stage, table

NAME, SIZE, TAGS = column("name", "string"), column("size", "int64"), column("tags", "array(string)")
FIRST = table(ID, NAME, SIZE)
EAGER = Maintenance(min_files=2, keep_snapshots=1, max_snapshot_age=0, orphan_age=0, target_file_size=1 << 20)
Row = dict[str, Any]


class Lake:
    """One table with a key; every write is a run of its own."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.to = IcebergDestination(IcebergConfig.resolved(name="lake", warehouse=str(folder / "lake"), **config))
        self.fence, self.table = 0, FIRST
        create(self.to, FIRST, self.commit())

    def commit(self) -> Commit:
        self.fence += 1
        self.to.write.claim(REF, self.fence)
        return Commit(f"r{self.fence}", self.fence, f'{{"upper": {self.fence}}}', "print")

    def append(self, *rows: Row) -> None:
        self.to.write.append(REF, [stage(self.to, REF, rows)], self.commit())

    def upsert(self, *rows: Row, **how: Any) -> None:
        self.to.write.merge(None, REF, [stage(self.to, REF, rows)], Merge(("id",), **how), self.commit())

    def add(self, *columns: Any) -> None:
        self._alter([ColumnAdded(("public", "orders"), c, 3 + i) for i, c in enumerate(columns)], add=columns)

    def undrop(self, *columns: Any) -> None:
        """What undoing their drop does."""
        self._alter([UndropColumn(("public", "orders"), c, c) for c in columns], add=columns)

    def drop(self, *columns: Any) -> None:
        self._alter([ColumnRemoved(("public", "orders"), c, 2) for c in columns], drop=columns)

    def _alter(self, changes: Any, add: Any = (), drop: Any = ()) -> None:
        gone = {c.name for c in drop}
        own = [c for c in self.table.columns if c.alias and c.name not in gone]
        self.table = table(*own, *add)
        self.to.schema.execute(REF, [step(REF, c) for c in changes], self.table, self.commit())

    def maintain(self, how: Maintenance = EAGER, **more: Any) -> Maintained:
        return self.to.maintenance.maintain(
            REF, MaintenanceSpec(how, "m", self.to.maintenance.latest_claim(REF), **more)
        )

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return rows_of(self.to, REF, columns or ("id", "name", "size"))

    @property
    def loaded(self) -> Any:
        found = self.to.lake.load(REF)
        assert found is not None
        return found

    def files(self) -> set[str]:
        return {t.file.file_path for t in self.loaded.scan().plan_files()}

    def on_disk(self, folder: str = "data") -> list[Path]:
        place = Path(self.loaded.location().removeprefix("file://")) / folder
        return sorted(p for p in place.rglob("*") if p.is_file())
