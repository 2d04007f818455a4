"""The tags of Spark jobs: they bear the process id of the command whose jobs they are."""

from __future__ import annotations

import os
import uuid


def job_tag() -> str:
    """Return a tag for one group of jobs of this process."""
    return f"{prefix_of(os.getpid())}{uuid.uuid4().hex}"


def prefix_of(command: int) -> str:
    """Return what the tags of all jobs of a process begin with."""
    return f"instep-{command}-"
