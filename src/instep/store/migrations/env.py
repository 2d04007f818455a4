"""Alembic's entry: migrates on the connection that `instep.store.engine.migrate.run` passes in, in its transaction."""

from __future__ import annotations

from alembic import context

from instep.store.tables.all import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
