"""Which files are put together and which snapshots go, as values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.schema.maintenance import DAY_MS, WORN_ROWS, FileFacts, Maintenance, bins, expirable_snapshots

HOW = Maintenance(target_file_size=100, min_files=3)
BIG = 10 * WORN_ROWS


def sized(*sizes: int) -> list[FileFacts]:
    return [FileFacts(size, 10) for size in sizes]


CASES: list[tuple[str, Sequence[FileFacts], tuple[tuple[int, ...], ...]]] = [
    ("no file", [], ()),
    ("fewer than it takes", sized(1, 1), ()),
    ("small ones", sized(10, 10, 10), ((0, 1, 2),)),
    ("large ones stay", sized(80, 10, 75, 10, 10, 200), ((1, 3, 4),)),
    ("a bin is at most the target size, and order is kept", sized(40, 40, 40, 40, 40), ((0, 1), (2, 3))),
    ("one that is far larger than the others together", sized(60, 3, 3, 3), ((1, 2, 3),)),
    ("one that is not", sized(40, 4, 4, 4), ((0, 1, 2, 3),)),
    ("far larger, and too few are left", sized(60, 3, 3), ()),
    ("larger ones stay that are too few by themselves", sized(40, 40, 1), ()),
    ("and go with the others when they are enough", sized(40, 40, 1, 40), ((0, 1, 2),)),
    ("worn", [FileFacts(500, BIG, BIG // 5), FileFacts(500, BIG, BIG // 5 - 1)], ((0,),)),
    ("few rows are no reason", [FileFacts(500, 100, 100)], ()),
    ("worn ones go with small ones", [FileFacts(120, BIG, BIG // 2), *sized(10, 10, 10)], ((0, 1, 2, 3),)),
    ("a small one that is left alone in its bin", sized(60, 60, 60), ()),
]


@pytest.mark.parametrize(("files", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_bins(files: Sequence[FileFacts], expected: tuple[tuple[int, ...], ...]) -> None:
    assert bins(files, HOW) == expected


FILES = st.lists(st.builds(FileFacts, st.integers(0, 300), st.just(BIG), st.integers(0, BIG)), max_size=30)


@given(files=FILES)
def test_each_file_at_most_once_in_order_and_never_for_nothing(files: list[FileFacts]) -> None:
    found = bins(files, HOW)
    flat = [i for one in found for i in one]
    assert flat == sorted(set(flat))
    for one in found:
        worn = any(files[i].deleted >= WORN_ROWS and files[i].deleted >= 0.2 * files[i].rows for i in one)
        assert worn or len(one) > 1
        assert len(one) == 1 or sum(files[i].left for i in one) <= HOW.target_file_size


@given(sizes=st.lists(st.integers(1, 20), min_size=60, max_size=200))
def test_a_table_that_grows_has_few_small_files_and_writes_each_byte_a_few_times(sizes: list[int]) -> None:
    """After each load the table is maintained, as syncs do it."""
    how = Maintenance(target_file_size=1_000, min_files=4)
    files: list[int] = []
    written = 0
    for size in sizes:
        files.append(size)
        for one in bins([FileFacts(s, 10) for s in files], how):
            together = sum(files[i] for i in one)
            files = [s for i, s in enumerate(files) if i not in one] + [together]
            written += together
    assert sum(s < 0.75 * how.target_file_size for s in files) <= 16
    assert written <= 8 * sum(sizes)


SNAPSHOTS = [(1, 1), (2, 2), (3, 3), (4, DAY_MS * 9), (5, DAY_MS * 10)]
EXPIRED: list[tuple[str, dict[str, float], set[int], tuple[int, ...]]] = [
    ("old ones", {"keep_snapshots": 1, "max_snapshot_age": 5}, set(), (3, 2, 1)),
    ("not those that are needed", {"keep_snapshots": 1, "max_snapshot_age": 5}, {2}, (3, 1)),
    ("not the newest", {"keep_snapshots": 4, "max_snapshot_age": 5}, set(), (1,)),
    ("not young ones", {"keep_snapshots": 1, "max_snapshot_age": 11}, set(), ()),
    ("at once", {"keep_snapshots": 1, "max_snapshot_age": 0}, {5}, (4, 3, 2, 1)),
]


@pytest.mark.parametrize(("how", "kept", "expected"), [c[1:] for c in EXPIRED], ids=[c[0] for c in EXPIRED])
def test_snapshots(how: dict[str, float], kept: set[int], expected: tuple[int, ...]) -> None:
    assert expirable_snapshots(SNAPSHOTS, kept, Maintenance(**how), DAY_MS * 10 + 1) == expected  # type: ignore[arg-type]
