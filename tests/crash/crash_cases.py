"""Which commands are killed where. A point of the source without a case fails test_crash_cases.py."""

from __future__ import annotations

SYNC = (
    "sync.claim.before",
    "sync.claim.after",
    "sync.snapshot",
    "sync.detected",
    "sync.recorded",
    "sync.held",
    "journal.settled",
    "journal.opened",
    "apply.table.before",
    "journal.started",
    "journal.started@2",
    "apply.table.after",
    "apply.table.after@3",
    "apply.accepted",
    "sync.accepted.after",
    "sync.planned",
    "sync.staged",
    "sync.verified",
    "sync.commit.before",
    "sync.commit.before@4",
    "merge.staged",
    "merge.merged",
    "merge.merged@2",
    "merge.published",
    "sync.commit.after",
    "sync.commit.after@3",
    "sync.cleared",
    "sync.done.before",
    "sync.noted",
    "sync.done.after",
)
"""Schema changes and row changes are pending."""

SPARK_MERGE = (
    "merge.staged",
    "merge.merged",
    "merge.merged@2",
    "merge.published",
    "sync.commit.after@3",
    "sync.cleared",
)
"""As SYNC, where Spark does the upserts, from a staging table."""

FIRST = (
    "sync.claim.after",
    "sync.recorded",
    "apply.table.before",
    "apply.table.after",
    "apply.table.after@3",
    "apply.accepted",
    "sync.planned",
    "sync.staged",
    "sync.commit.before",
    "sync.commit.after",
    "sync.commit.after@3",
    "sync.done.before",
    "sync.noted",
)
"""Nothing is in the lake."""

APPLY = (
    "sync.claim.before",
    "sync.claim.after",
    "journal.settled",
    "journal.opened",
    "journal.started@2",
    "apply.table.before",
    "apply.table.after",
    "apply.table.after@4",
    "apply.accepted",
    "sync.done.after",
)

BACKFILL = (
    "sync.planned",
    "sync.staged",
    "sync.commit.before",
    "sync.commit.after",
    "sync.done.before",
    "sync.noted",
)

ZOMBIE = (
    "sync.claim.after",
    "sync.detected",
    "sync.recorded",
    "apply.table.before",
    "apply.table.after@4",
    "apply.accepted",
    "sync.planned",
    "sync.staged",
    "sync.commit.before",
    "merge.staged",
    "merge.merged",
    "merge.published",
    "sync.done.before",
    "sync.noted",
)
"""Held there while a later run takes over."""

FILL = ("fill.before", "fill.read", "fill.rewritten", "fill.committed", "fill.done")
"""A column is let in whose values the rows loaded before get by a fill."""

UNDO = (
    "undo.before",
    "journal.opened",
    "undo.table",
    "undo.table@2",
    "undo.committed",
    "undo.accepted",
)
"""All changes of a sync are taken back, a drop among them."""

PROMOTE = ("promote.before", "promote.committed", "promote.done")
"""A column is let in whose values only the lake has, as JSON: tests/sync/test_sync_promote.py."""

MAINTAIN = ("maintain.packed", "maintain.compacted", "maintain.expired", "maintain.removed")
"""A table's files are put together and its old snapshots go: tests/destinations/test_iceberg_maintain.py."""

OLD_NAMES = ("old_names.room", "old_names.shown")
"""A column is renamed whose old name stays readable: tests/sync/test_sync_old_names.py."""

RESTORE = ("restore.before", "restore.after")
"""A table is put back to a snapshot."""

REPAIR = ("repair.staged", "sync.commit.before", "sync.commit.after", "sync.cleared")
"""Rows that somebody has changed, deleted and added are corrected."""

DUCKDB = ("sql.commit.before", "sql.commit.before@3")
"""Beside the points of every sync into a DuckDB file: test_crash_matrix.py."""

POSTGRES = ("sql.commit.before", "sql.commit.before@3", "sql.commit.after")
"""The same into a PostgreSQL database."""

POSTGRES_COPY = ("sql.copied", "sql.copied@2", "sync.commit.after", "sync.commit.after@3")
"""The same where tasks of Spark copy the rows: test_crash_postgres.py."""

DELTA = (
    "delta.commit.before",
    "delta.commit.before@3",
    "delta.commit.before@6",
    "delta.recorded@2",
    "delta.moved.before",
    "delta.moved.after",
)
"""The same into Delta tables: before each version of a log, and once its record is written; and around a move of a
folder."""

REPLAY = ("replay.commit.before", "replay.commit.after", "replay.batch")
"""A held value is put back into its row."""

REWRITE = ("rewrite.part", "rewrite.part@2", "rewrite.part@3")
"""A column of a large table is rewritten in parts."""

LOG = ("log.created", "log.saved", "log.released")
"""Tables follow the source's log: tests/log/test_log_lost.py and test_either_lost.py."""

CONNECTOR = (
    "connector.file.copied", "connector.file.placed", "connector.segment.committed", "connector.segment.saved.before",
    "connector.segment.saved.after",
)  # fmt: skip
"""A row's file is put in place, a connector's operations are at the destination, its state is saved:
tests/connector/test_connector_crash.py."""

HISTORY = ("history.begun", "history.written")
"""A table keeps its history: tests/sync/test_sync_versions_retained.py and test_crash_history.py."""

TWICE = ("journal.settled", "apply.table.after", "merge.staged", "sync.commit.after")
"""Killed there, and the run after it killed there too."""
SECRETS = tuple(f"secrets.rotate.{at}" for at in ("row@1", "row@2", "row@4", "row@10", "batch@1", "batch@3", "batch@4"))
"""Of ten secrets in batches of three."""
LEAVE = (
    "leave.log.after", "leave.table.after@1", "leave.table.after@2", "leave.tables.after", "leave.records.before",
    "leave.object.before",
)  # fmt: skip
"""The end of a connection with two tables."""

ROLLOUT = ("rollout.begun", "rollout.ran", "rollout.ended", "rollout.released")
"""Two waves over four connections: tests/rollouts/test_rollouts_crash.py."""

ROLLOUT_BACK = ("rollout.back", "rollout.released")
"""A wave of it is taken back."""

PUBLISH = (
    "publish.approved",
    "apply.table.before",
    "apply.table.after",
    "apply.accepted",
    "publish.applied",
    "fill.read",
)
"""A previewed change is published."""
