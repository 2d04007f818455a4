"""The tables of the queue: jobs, workers, schedules, detectors, detections of sources.

The tables of notices, in the same metadata as the others.
"""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text

from instep.store.tables.columns import Utc, count_column, error_column, metadata, number_column, one_while, text_column

LOST = ("failed", "dead")
"""Statuses of jobs that did not do their work: no other attempt would help, or all are used up."""
MOVES = ("sync", "backfill", "refresh")
"""Kinds of jobs that move rows."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("connection", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("options", JSON, nullable=False),
    Column("priority", Integer, nullable=False, server_default="0"),
    Column("key", String, nullable=False, server_default=""),
    Column("status", String, nullable=False),
    Column("due", Utc, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("attempts", Integer, nullable=False, server_default="1"),
    text_column("why"),
    text_column("who"),
    error_column(),
    Column("created", Utc, nullable=False),
    Column("started", Utc),
    Column("ended", Utc),
    Column("lease_until", Utc),
    Column("owner", String, nullable=False, server_default=""),
    count_column("fence"),
    text_column("stop"),
    text_column("run"),
    Column("result", JSON, nullable=False, server_default="{}"),
    Column("source", String, nullable=False, server_default=""),
)
Index("ix_jobs_queue", jobs.c.status, jobs.c.priority, jobs.c.due)
Index("ix_jobs_connection", jobs.c.connection, jobs.c.created)
Index("ix_jobs_created", jobs.c.created)
one_while(
    "uq_jobs_running", jobs, ("connection",), "status = 'running' AND connection <> '' AND kind <> 'test_connection'"
)
one_while("uq_jobs_queued", jobs, ("connection", "kind", "key"), "status = 'queued'")

workers = Table(
    "workers",
    metadata,
    Column("id", String, primary_key=True),
    Column("host", String, nullable=False),
    Column("pid", BigInteger, nullable=False),
    text_column("pid_started"),
    Column("lanes", Integer, nullable=False),
    Column("started", Utc, nullable=False),
    Column("seen", Utc, nullable=False),
    Column("stopping", Boolean, nullable=False),
)

schedules = Table(
    "schedules",
    metadata,
    Column("connection", String, primary_key=True),
    Column("kind", String, primary_key=True),
    Column("spec", String, nullable=False),
    Column("timezone", String, nullable=False),
    Column("key", String, nullable=False, server_default=""),
    Column("options", JSON, nullable=False),
    Column("next_due", Utc),
    Column("last_due", Utc),
    Column("source", String, nullable=False, server_default=""),
)
Index("ix_schedules_next_due", schedules.c.next_due)

detectors = Table(
    "detectors",
    metadata,
    Column("connection", String, primary_key=True),
    text_column("disabled"),
    Column("disabled_at", Utc),
    Column("error_at", Utc),
)

setups = Table(
    "setups",
    metadata,
    Column("connection", String, primary_key=True),
    error_column(),
    Column("at", Utc, nullable=False),
)

looks = Table(
    "looks",
    metadata,
    Column("source", String, primary_key=True),
    Column("settings", String, nullable=False),
    Column("connection", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("begun", Utc, nullable=False),
)


rollouts = Table(
    "rollouts",
    metadata,
    Column("id", String, primary_key=True),
    Column("what", JSON, nullable=False),
    Column("members", JSON, nullable=False),
    Column("sizes", JSON, nullable=False),
    Column("gates", JSON, nullable=False),
    Column("status", String, nullable=False),
    Column("wave", Integer, nullable=False, server_default="0"),
    Column("waves", Integer, nullable=False, server_default="0"),
    text_column("why"),
    text_column("who"),
    Column("created", Utc, nullable=False),
    Column("updated", Utc, nullable=False),
    count_column("fence"),
    text_column("host"),
    count_column("pid"),
    text_column("pid_started"),
    Column("lease_until", Utc),
)
Index(None, rollouts.c.created)

rollout_members = Table(
    "rollout_members",
    metadata,
    Column("rollout", String, ForeignKey("rollouts.id"), primary_key=True),
    Column("connection", String, primary_key=True),
    Column("wave", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("fit", String, nullable=False),
    text_column("why"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("before", JSON, nullable=False),
    text_column("run"),
    error_column(),
    Column("findings", JSON, nullable=False),
    text_column("accepted"),
    text_column("who"),
    Column("started", Utc),
    Column("ended", Utc),
)
Index(None, rollout_members.c.connection)


outbox = Table(
    "outbox",
    metadata,
    number_column(),
    Column("event", BigInteger, nullable=False),
    Column("channel", String, nullable=False),
    Column("connection", String, nullable=False),
    Column("batch", String, nullable=False),
    Column("notice", String, nullable=False),
    Column("severity", String, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("due", Utc, nullable=False),
    Column("at", Utc, nullable=False),
    Column("delivery", BigInteger),
    sqlite_autoincrement=True,
)
Index("uq_outbox_event", outbox.c.channel, outbox.c.event, unique=True)
Index("ix_outbox_delivery", outbox.c.delivery, outbox.c.due)

deliveries = Table(
    "deliveries",
    metadata,
    number_column(),
    Column("id", String, nullable=False),
    Column("channel", String, nullable=False),
    Column("batch", String, nullable=False),
    Column("urgent", Boolean, nullable=False),
    Column("notices", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("due", Utc, nullable=False),
    Column("lease_until", Utc),
    Column("created", Utc, nullable=False),
    Column("ended", Utc),
    error_column(),
    Column("spent", Integer, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
Index("uq_deliveries_id", deliveries.c.id, unique=True)
Index("ix_deliveries_status", deliveries.c.status, deliveries.c.due)
Index("ix_deliveries_batch", deliveries.c.channel, deliveries.c.batch, deliveries.c.created)

delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column("delivery", BigInteger, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("at", Utc, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("code", Integer, nullable=False, server_default="0"),
    error_column(),
)

closed_channels = Table(
    "closed_channels",
    metadata,
    Column("channel", String, primary_key=True),
    Column("why", Text, nullable=False),
    Column("at", Utc, nullable=False),
)


totals = Table(
    "totals",
    metadata,
    Column("name", String, primary_key=True),
    Column("labels", String, primary_key=True),
    Column("value", Float, nullable=False),
)

installation = Table("installation", metadata, Column("id", String, primary_key=True))
