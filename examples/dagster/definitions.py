"""A connection's tables as assets, with checks of their schema changes and of their rows.

Try it with `INSTEP_PROJECT=/path/to/project dagster dev -f definitions.py`.
"""

import os
from collections.abc import Iterator

import dagster as dg

import instep

CONNECTION = "shop"
TABLES = ("main.customer", "main.orders")


class InstepProject(dg.ConfigurableResource):
    """The folder of instep.yml."""

    folder: str

    def open(self) -> instep.Project:
        return instep.open(self.folder)


def key_of(table: str) -> dg.AssetKey:
    return dg.AssetKey([CONNECTION, table.split(".")[-1]])


@dg.multi_asset(specs=[dg.AssetSpec(key_of(table), group_name=CONNECTION) for table in TABLES], can_subset=True)
def tables(context: dg.AssetExecutionContext, project: InstepProject) -> Iterator[dg.MaterializeResult]:
    """Sync the tables that are asked for. A schema change that waits for a decision does not stop the others."""
    wanted = [table for table in TABLES if key_of(table) in context.selected_asset_keys]
    with project.open() as opened:
        done = opened.connection(CONNECTION).sync(wanted)
    for table in done.tables:
        if table.status == "done":
            counts = {
                name: getattr(table, name) for name in ("read", "inserted", "updated", "deleted", "invalid_values")
            }
            yield dg.MaterializeResult(asset_key=key_of(".".join(table.table)), metadata={**counts, "run": done.run})
    done.raise_for_failure()


def schema_check(table: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key_of(table), name="schema_changes_are_decided")
    def check(project: InstepProject) -> dg.AssetCheckResult:
        """Warn while a schema change of the table waits for a decision, and name it."""
        with project.open() as opened:
            changes = [c for c in opened.connection(CONNECTION).changes() if ".".join(c.table) == table]
        found = {change.id: change.summary for change in changes}
        severity = dg.AssetCheckSeverity.WARN
        return dg.AssetCheckResult(passed=not found, severity=severity, metadata={"changes": found})

    return check


def row_check(table: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=key_of(table), name="rows_equal_the_source")
    def check(project: InstepProject) -> dg.AssetCheckResult:
        """Compare the table with its source, row by row."""
        with project.open() as opened:
            [verdict] = opened.connection(CONNECTION).verify([table])
        differences = list(verdict.differences)
        return dg.AssetCheckResult(
            passed=verdict.equal, metadata={"rows": verdict.destination_rows, "differences": differences}
        )

    return check


checks = [make(table) for table in TABLES for make in (schema_check, row_check)]
defs = dg.Definitions(
    assets=[tables],
    asset_checks=checks,
    resources={"project": InstepProject(folder=os.environ.get("INSTEP_PROJECT", "."))},
)
