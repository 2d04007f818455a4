"""Payload of tasks in the description of their job, which Spark keeps in memory: it holds passwords and salts.

Every task gets the whole description, with the work of all. Queries of one table are alike, so it is compressed: that
of 100,000 chunks of 50 columns has 4 MB instead of 164.

The tags of Spark jobs: they bear the process id of the command whose jobs they are.
"""

from __future__ import annotations

import os
import pickle
import uuid
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from instep.errors import StageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


THRESHOLD = "spark.broadcast.UDFCompressionThreshold"
"""From this many bytes on pyspark writes a description to files of the driver and of executors, as it is."""
_ENVELOPE = 64 << 10


def packed(what: object) -> bytes:
    return zlib.compress(pickle.dumps(what), 1)


def unpacked(data: bytes) -> Any:
    return pickle.loads(zlib.decompress(data))


def check_size(spark: SparkSession, work: Sequence[bytes]) -> None:
    """Raise StageError if the session would write a description with this work to a file; one of ours would not."""
    context: Any = getattr(spark, "_sc", None)
    if context is None:
        return  # Spark Connect writes none
    size = sum(map(len, work)) + _ENVELOPE
    if size > int(context._jvm.PythonUtils.getBroadcastThreshold(context._jsc)):
        raise StageError(
            f"Spark would write what it tells its tasks to a file, with passwords in it: it has {size / 1e6:,.1f} MB",
            hint=f"start the Spark session with {THRESHOLD}=1g, or leave this setting out of `spark: {{conf: ...}}`",
        )


def job_tag() -> str:
    """Return a tag for one group of jobs of this process."""
    return f"{prefix_of(os.getpid())}{uuid.uuid4().hex}"


def prefix_of(command: int) -> str:
    """Return the prefix of the tags of all jobs of a process."""
    return f"instep-{command}-"
