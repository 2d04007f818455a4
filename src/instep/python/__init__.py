"""The Python API: a project, its connections, and what can be asked of them, here or at a server."""
