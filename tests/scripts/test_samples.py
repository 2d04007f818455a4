"""What runs of a sampled test covers what its mark promises, whatever the commit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples

SIZES = st.lists(st.integers(2, 6), min_size=1, max_size=3)


@given(sizes=SIZES, name=st.text(max_size=8))
def test_every_combination_of_all_parameters_but_one_occurs(sizes: list[int], name: str) -> None:
    cases = list(itertools.product(*map(range, sizes)))
    kept = [cases[position] for position in samples.chosen(cases, name)]
    if len(sizes) == 1:
        assert len(kept) == max(1, sizes[0] // samples.ONE_IN)
        return
    for axes in itertools.combinations(range(len(sizes)), len(sizes) - 1):
        assert {tuple(c[a] for a in axes) for c in kept} == {tuple(c[a] for a in axes) for c in cases}


def test_a_number_is_kept_to() -> None:
    cases = list(itertools.product(range(6), range(10)))
    assert len(samples.chosen(cases, "t", 10)) == 6


def test_the_seed_decides_and_many_of_them_cover_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(n,) for n in range(12)]
    covered: set[int] = set()
    for number in range(40):
        monkeypatch.setattr(samples, "seed", lambda number=number: str(number))
        chosen = samples.chosen(cases, "t")
        assert chosen == samples.chosen(cases, "t")
        covered |= chosen
    assert covered == set(range(12))
