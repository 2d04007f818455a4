"""The page of figures: medians, ratios, failures and faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import report


def record(label: str, wall: float, *, peer: bool = True, phase: str = "first", **more: Any) -> dict[str, Any]:
    base = {"exit_code": 0, "cpu": 1.0, "server_cpu": 0.5, "peak_mb": 100, "busy_elsewhere": 0.0, "round": 1}
    return {"label": label, "peer": peer, "phase": phase, "wall": wall, **base, **more}


def page(*records: dict[str, Any], suite: str = "1m") -> list[str]:
    results = {suite: {"facts": {"cores": "2"}, "tables": 1, "rows": 1000, "records": list(records)}}
    return report.markdown(results).splitlines()


def cells(lines: list[str], label: str) -> list[str]:
    return [cell.strip() for line in lines if line.startswith(f"| {label} |") for cell in line.strip("|").split("|")]


def test_medians_and_ratios() -> None:
    lines = page(
        record("COPY binary to nowhere", 1.0, peer=False),
        *(record("dlt -> parquet", wall) for wall in (9.0, 4.0, 5.0)),
        record("sling -> csv", 10.0),
        record("instep -> iceberg", 2.5, peer=False, verdict={"faults": {}, "types": {}}),
    )
    assert cells(lines, "instep -> iceberg")[1:4] == ["2.50", "0.50", "2.50"]
    assert cells(lines, "dlt -> parquet")[1:4] == ["5.00", "1.00", "5.00"]
    assert cells(lines, "instep -> iceberg")[-1] == "yes"
    assert cells(lines, "sling -> csv")[-1] == ""


def test_lines_stand_in_order_of_time_and_failures_last() -> None:
    lines = page(record("c", 3.0), record("broken", 0.1, exit_code=7), record("a", 1.0))
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:] == ["---", "a", "c", "broken"]
    assert "failed (exit code 7)" in cells(lines, "broken")


def test_a_failed_run_does_not_enter_the_median() -> None:
    lines = page(record("a", 1.0), record("a", 90.0, exit_code=1), record("a", 1.2))
    assert cells(lines, "a")[1] == "1.10, 1 of 3 failed"


def test_faults_and_types_are_named_at_their_worst() -> None:
    verdicts = [{"faults": {"amount differs": n}, "types": {"amount": "DOUBLE"}} for n in (5, 12_000)]
    lines = page(*(record("a", 1.0, verdict=verdict) for verdict in verdicts))
    assert "- a: amount differs: 12,000 rows" in lines
    assert "- a: amount is stored as DOUBLE" in lines
    assert cells(lines, "a")[-1] == "no"


def test_noise_is_marked() -> None:
    assert cells(page(record("a", 1.0, busy_elsewhere=0.5)), "a")[1] == "1.00 (noisy)"


def test_in_the_second_suite_only_second_syncs_count() -> None:
    lines = page(
        record("a", 9.0),
        record("a", 1.0, phase="second"),
        record("a", 2.0, phase="backfill"),
        record("b", 0.1, exit_code=1),
        suite="second",
    )
    assert cells(lines, "a")[1] == "1.00"
    assert cells(lines, "a, then backfill")[1] == "2.00"
    assert "failed (exit code 1)" in cells(lines, "b")


def test_the_text_around_the_figures_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "benchmarks.md"
    target.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", target)
    report.write_page({})
    report.write_page({})
    assert target.read_text() == f"before\n{report.BEGIN}\n\n{report.END}\nafter\n"


def test_what_the_source_sent_is_compared() -> None:
    """A sync that only prepares is left out, as in the second suite."""
    lines = page(
        record("a", 9.0), record("a", 2.0, phase="column", wire=1 << 20), record("a", 3.0, phase="table", wire=5 << 20),
        suite="fill",
    )  # fmt: skip
    [sent] = [line for line in lines if line.startswith("Sent by the source")]
    assert sent == (
        "Sent by the source: a, one column filled: 1.0 MB (0.20x); a, whole table read again: 5.0 MB (1.00x)."
    )
    assert not cells(lines, "a")
