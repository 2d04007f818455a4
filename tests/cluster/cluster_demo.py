"""The demo on a Spark that is not started by it: made, pointed there by `spark:` alone, and played."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

PARTS = (
    "discount filled in 59,400 rows loaded before",
    "undone: schema version 3",
    "public.product: 40 replayed, 0 superseded by newer values, 0 still quarantined",
    "50  lifetime  L50",
)
TABLES = 9 + 1


@dataclass
class Demo:
    """A demo in a folder; `env` is what its commands have beside this process's environment."""

    folder: Path
    env: Mapping[str, str]
    loaded: int = 0
    """How many tables of the connection `shop` have rows."""

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "instep.cli.main", "--project", str(self.folder), *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **self.env}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=600, check=False, env=self.environment
        )

    def told(self, *words: str) -> str:
        """What a command that has to go well says."""
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout

    def played(self) -> str:
        """Its whole story."""
        story = self.told("demo", "play")
        self.loaded = TABLES - 1
        return story

    def load(self) -> None:
        """Its tables have rows, by its story or by a sync."""
        if not self.loaded:
            self.told("sync", "shop")
            self.loaded = TABLES - 2  # its story makes one more

    def change(self, pattern: str, to: str) -> None:
        """Writes `to` in place of the one line of instep.yml that fits."""
        file = self.folder / "instep.yml"
        text, count = re.subn(pattern, lambda _: to, file.read_text(encoding="utf-8"))
        assert count == 1, pattern
        file.write_text(text, encoding="utf-8")

    def spark(self, **settings: Any) -> None:
        """Say where Spark is, in place of what was said before: `engine: spark` alone at first."""
        self.change(r"(?m)^engine: spark.*$(\nspark: .*$)?", f"engine: spark\nspark: {json.dumps(settings)}")

    def equal(self, connection: str) -> list[str]:
        """The tables whose rows are those of the source."""
        return re.findall(r"^equal +(\S+)", self.told("verify", connection), re.MULTILINE)


@contextmanager
def made_demo(spark: Mapping[str, Any], **env: str) -> Iterator[Demo]:
    """A demo with this `spark:` section."""
    folder = Path(mkdtemp(prefix="instep-demo-"))  # not pytest's: its database server may run as another user
    folder.chmod(0o755)
    demo = Demo(folder / "demo", env)
    try:
        demo.told("init", "--demo")
        demo.spark(**spark)
        yield demo
    finally:
        demo.run("demo", "down")
        shutil.rmtree(folder, ignore_errors=True)
