"""examples/notebook/first-sync.ipynb runs from its first cell to its last, in a kernel of its own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook" / "first-sync.ipynb"
SPARK = "## In Spark"


def stored() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def run(notebook: Any, folder: Path) -> dict[str, str]:
    """The last result of each cell of code in HTML, else what it has printed, by the cell's last line."""
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    client.km = client.create_kernel_manager()
    with TemporaryDirectory(prefix="kernel-") as sockets:  # a short path: no ports are taken
        client.km.transport, client.km.ip = "ipc", f"{sockets}/k"
        client.execute()
    found = {}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            data = [output.get("data", {}).get("text/html") or output.get("text", "") for output in cell.outputs]
            found[cell.source.splitlines()[-1]] = "".join(data)
    return found


def check(found: dict[str, str]) -> None:
    assert "<b>done</b>" in found["shop.sync()"]
    assert "rename proposal" in found["shop.detect()"]
    assert "possible rename (city -&gt; town: 0.85)" in found["shop.plan()"]
    assert "loses data: joined" in found["plan"]
    assert "<td>silver</td>" in found["project.query(customers).to_pandas()"]
    restored = 'project.query("select id, name, joined from shop.customer order by id").to_pandas()'
    assert "<td>2025-01-03</td>" in found[restored], "what was dropped is back"
    assert "change.undone" in found["shop.history(10)"]
    assert found["shop.verify()"].count("<td>True</td>") == 4, "both tables are compared, and equal"
    assert found[")"].count("<td>passed</td>") == 2


def test_the_notebook_is_stored_without_results() -> None:
    cells = [cell for cell in stored().cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    nbformat.validate(stored())  # type: ignore[no-untyped-call]


def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = stored()
    at = next(number for number, cell in enumerate(notebook.cells) if cell.source.startswith(SPARK))
    notebook.cells = notebook.cells[:at]
    check(run(notebook, tmp_path))


@pytest.mark.drawn(5)
@pytest.mark.spark
@pytest.mark.slow
def test_the_notebook_runs_with_its_part_in_spark(tmp_path: Path) -> None:
    found = run(stored(), tmp_path)
    check(found)
    tables = found['spark.table("lake.shop.orders").select("id", "total").orderBy("id").show()']
    assert "|  Oslo|    2|" in tables
    assert "|  3|120.50|" in tables
