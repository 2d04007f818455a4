"""Puts a project together: `kinds` is the only place that knows which class serves which `type:`.

Nothing heavy is imported before it is asked for: a command that only reads the store loads no source, no
destination and no engine.
"""

from instep.bootstrap.app import App, open_page, open_project, open_server, open_work, opens, user

__all__ = ["App", "open_page", "open_project", "open_server", "open_work", "opens", "user"]
