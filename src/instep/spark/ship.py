"""Send this package's modules to Spark workers on other machines.

pyarrow and the source's driver have to be installed there; they are not pure Python.
"""

from __future__ import annotations

import atexit
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import instep
from instep.temporary import TemporaryFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_shipped: set[str] = set()


def package(folder: Path) -> Path:
    """Return a zip file of this package's modules in `folder`, importable as it is."""
    root = Path(instep.__file__).parent
    target = folder / f"instep-{instep.__version__}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(root.rglob("*.py")):
            out.write(file, f"instep/{file.relative_to(root)}")
    return target


def ship(spark: SparkSession) -> None:
    """Make this package importable in the session's tasks, once; for sessions that are not on this machine.

    The file stays until this process ends: executors that start later fetch it from here.
    """
    context = getattr(spark, "_sc", None)
    where = spark.session_id if context is None else context.applicationId  # type: ignore[attr-defined]
    if where in _shipped:
        return
    folder = TemporaryFolder("ship")
    atexit.register(folder.close)
    file = str(package(Path(folder.path)))
    paths = list(sys.path)
    if context is None:
        spark.addArtifacts(file, pyfile=True)
    else:
        context.addPyFile(file)
    sys.path[:] = [path for path in sys.path if path in paths]  # a child of this process has files to run
    _shipped.add(where)
