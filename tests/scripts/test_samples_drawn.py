"""The parts of the tests that run: of the size that is asked for, chosen anew by each commit, all in the end."""

from __future__ import annotations

import pytest

import samples


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(samples, "seed", lambda: "1")
    return monkeypatch


def over(seeded: pytest.MonkeyPatch, commits: int, count: int, one_in: int, **more: bool) -> list[set[int]]:
    found = []
    for commit in range(commits):
        seeded.setattr(samples, "seed", lambda commit=commit: str(commit))
        found.append(samples.drawn(count, "file", one_in, **more))
    return found


@pytest.mark.parametrize(("count", "one_in"), [(1, 1), (7, 1), (1, 2), (10, 3), (12, 4), (2, 5)])
def test_one_in_so_many_is_drawn(seeded: pytest.MonkeyPatch, count: int, one_in: int) -> None:
    found = over(seeded, 400, count, one_in)
    assert {len(kept) for kept in found} <= {count // one_in, -(-count // one_in)}
    assert sum(map(len, found)) == pytest.approx(400 * count / one_in, rel=0.25)
    assert set.union(*found[:40]) == set(range(count))


def test_what_runs_together_runs_whole_or_not_at_all(seeded: pytest.MonkeyPatch) -> None:
    found = over(seeded, 60, 7, 3, together=True)
    assert {len(kept) for kept in found} == {0, 7}
    assert 8 < found.count(set(range(7))) < 36


def test_the_same_commit_draws_the_same(seeded: pytest.MonkeyPatch) -> None:
    assert over(seeded, 5, 30, 3) == over(seeded, 5, 30, 3)


def test_a_covering_part_has_every_pair_of_values() -> None:
    cases = [(a, b, c) for a in range(4) for b in range(3) for c in range(3)]
    kept = [cases[at] for at in samples.chosen(cases, "test")]
    assert len(kept) < len(cases)
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert {(k[first], k[second]) for k in kept} == {(c[first], c[second]) for c in cases}
