"""A connector's folder and what runs it, as one small file that travels to a machine which has neither."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

from instep.errors import ProjectError
from instep.sources.connector.child import LOCAL_HOST, Host, check
from instep.sources.connector.config import ConnectorConfig

MOST = 64 << 20
"""Bytes of a bundle: each run of the connector brings it to the machines again."""
_LEFT_OUT = frozenset({"__pycache__", ".git", ".instep", ".venv", "venv"})
_CODE, _PROGRAM = "connector", "program"
_BEGINNING = (1980, 1, 1, 0, 0, 0)


def pack(config: ConnectorConfig) -> bytes:
    """Return the same bytes for the same files. Left out are caches, virtual environments, and projects below the
    folder (what `connector debug` leaves). ProjectError without a connector.py, and for a folder that is too large."""
    check(config)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        for top, root in ((_CODE, Path(config.path)), (_PROGRAM, LOCAL_HOST.program)):
            for file in _files(root) if top == _CODE else _own(root):
                _add(out, f"{top}/{file.relative_to(root)}", file)
                if packed.tell() > MOST:
                    raise ProjectError(
                        f"connector {config.name}: its folder {config.path} is larger than {MOST >> 20} MB when packed "
                        "for Spark's machines",
                        hint="keep data and environments out of the connector's folder",
                    )
    return packed.getvalue()


def unpack(bundle: bytes, folder: Path) -> tuple[Path, Host]:
    """(the connector's folder, what runs it), both below `folder`."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as packed:
        for info in packed.infolist():
            Path(packed.extract(info, folder)).chmod(info.external_attr >> 16)
    return folder / _CODE, Host(folder / _PROGRAM, str(folder))


def _add(out: zipfile.ZipFile, name: str, file: Path) -> None:
    info = zipfile.ZipInfo(name, _BEGINNING)
    info.external_attr = (0o700 if os.access(file, os.X_OK) else 0o600) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    with file.open("rb") as source, out.open(info, "w", force_zip64=True) as target:
        while piece := source.read(1 << 20):
            target.write(piece)


def _files(root: Path) -> Iterator[Path]:
    """In order, links followed; a folder that links lead to twice is taken once."""
    seen: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        below[:] = sorted(n for n in below if n not in _LEFT_OUT and not Path(folder, n, "instep.yml").is_file())
        yield from (path for path in (Path(folder, name) for name in sorted(names)) if path.is_file())


def _own(root: Path) -> Iterator[Path]:
    yield root / "guard.py"
    yield from sorted((root / "sdk").rglob("*.py"))
