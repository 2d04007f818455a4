"""A cluster's executors: waited for, counted, and whether they see the files that this machine writes."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from instep.errors import SetupError, StageError
from instep.spark.failure import explain
from instep.stage.files.place import StorageFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAIT = "spark.instep.executorWait"
"""The setting of ours under `spark.conf`: seconds until the first executor has to be there."""
_WAIT = 300.0
_SETTLED, _SETTLING = 1.0, 10.0
_POLL = 0.1
_MOST = 64
"""Task slots that are counted on where the cluster grows with the work and has no bound of its own."""
_FORGOTTEN = 7 * 86400.0  # seconds after which nobody waits for a file of a driver
_counted: dict[int, int] = {}


def wait_for_executors(spark: SparkSession) -> None:
    """Wait until executors are there and no more have come for a second; SetupError if there is none in time.

    Spark itself waits for ever, and spreads the first job over those that have come by then. Executors that come and
    go with the work (dynamic allocation) are not waited for: there has to be work first.
    """
    context = spark.sparkContext
    if _is_elastic(context):
        return
    wait = float(setting_of(context, WAIT) or _WAIT)
    begun = time.monotonic()
    executors, changed = 0, begun
    while True:
        now, count = time.monotonic(), len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
        if count != executors:
            executors, changed = count, now
        if executors and (now - changed >= _SETTLED or now - begun >= wait + _SETTLING):
            return
        if not executors and now - begun >= wait:
            raise _none(context, wait)
        time.sleep(_POLL)


def _is_elastic(context: Any) -> bool:
    return (setting_of(context, "spark.dynamicAllocation.enabled") or "false").lower() == "true"


def setting_of(context: Any, name: str) -> str | None:
    """Return a setting of a SparkContext, None if it is not set; `getConf` would copy all of them, one call each."""
    value: str | None = context._conf.get(name)
    return value


def _none(context: Any, wait: float) -> SetupError:
    memory = setting_of(context, "spark.executor.memory") or "1g"
    unset = "1" if context.master.startswith(("yarn", "k8s")) else "any number of"
    cores = setting_of(context, "spark.executor.cores") or unset
    return SetupError(
        f"{context.master} gave no executor within {wait:.0f} s: asked for {memory} of memory and {cores} cores",
        hint="free a worker, or ask for less (spark.executor.memory, spark.executor.cores under spark.conf in "
        f"instep.yml); {WAIT} is how many seconds to wait",
    )


def slots(spark: SparkSession) -> int:
    """Return how many tasks run at a time; at least 1. Asked once a session where that takes a job."""
    context = getattr(spark, "_sc", None)
    if context is None:
        # connect tells nothing of the cluster but into how many parts it would divide a range
        if id(spark) not in _counted:
            try:
                parts = spark.range(0, 1 << 16).selectExpr("spark_partition_id() AS part")
                last = parts.groupBy().max("part").collect()[0][0]
            except Exception as error:
                raise explain(error) from error
            _counted[id(spark)] = int(last or 0) + 1
        return _counted[id(spark)]
    if _is_elastic(context):
        return growing(partial(setting_of, context))
    return max(1, int(context.defaultParallelism))


def growing(setting: Callable[[str], str | None]) -> int:
    """Return how many tasks at a time a cluster is asked for that brings executors as there is work."""
    executors = int(setting("spark.dynamicAllocation.maxExecutors") or _MOST)
    return max(1, min(executors * int(setting("spark.executor.cores") or 1), _MOST))


@contextmanager
def probe_file(folders: Iterable[str], elsewhere: bool) -> Iterator[str]:
    """Yield the path of a file in the first local one of `folders` (URIs, made if missing), "" without one or where
    tasks run on this machine. It is deleted afterwards."""
    local = (
        next((place for folder in folders if (place := StorageFolder(folder).local) is not None), None)
        if elsewhere
        else None
    )
    if local is None:
        yield ""
        return
    file = local / f".seen-{uuid.uuid4().hex}"
    try:
        local.mkdir(parents=True, exist_ok=True)
        _forget(local)
        file.touch()
    except OSError as error:
        raise StageError(f"cannot write {local}: {error.strerror}", hint="check the folder and its disk") from error
    try:
        yield str(file)
    finally:
        with suppress(OSError):
            file.unlink()


def _forget(folder: Path) -> None:
    """Remove what killed drivers have left: no extraction takes so long."""
    for file in folder.glob(".seen-*"):
        with suppress(OSError):
            if time.time() - file.stat().st_mtime > _FORGOTTEN:
                file.unlink()


def check_witness(file: str) -> None:
    """Raise SetupError on a machine that does not see the file of the driver."""
    if file and not Path(file).exists():
        raise SetupError(
            f"the executor on {os.uname().nodename} does not see {Path(file).parent}, a folder of the machine that "
            "runs instep: nothing was read; put the warehouse into an object store, or on a disk that all machines "
            "have under the same path (docs/guides/cluster.md)"
        )
