"""The Python API: a project, its connections, and what can be asked of them, here or at a server."""

from contextlib import suppress

with suppress(ModuleNotFoundError):  # `instep[local]` comes without it
    import pandas

    _ = pandas  # before anything else here: pyarrow would go on without it, and fail at NA and NaT of the caller
