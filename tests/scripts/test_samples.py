"""What runs of a sampled test covers what its mark promises, whatever the commit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples

pytest_plugins = "pytester"
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


BESIDE = """
import pytest

@pytest.fixture(params=["x", "y", "z"])
def place(request):
    return request.param

@pytest.mark.sampled
@pytest.mark.parametrize(("case", "result"), [(n, object()) for n in range(5)])
def test_one(place, case, result):
    pass

@pytest.mark.sampled
@pytest.mark.parametrize("result", [1, 2])
@pytest.mark.parametrize("case, same", [(1, 1), (2, 1), (3, 1)])
def test_two(place, case, same, result):
    pass
"""


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "sizes"), [("test_one", {3, 5}), ("test_two", {2, 3})])
def test_values_of_a_fixture_are_an_axis_beside_those_of_a_mark(
    pytester: pytest.Pytester, name: str, sizes: set[int]
) -> None:
    cases = [i for i in pytester.getitems(BESIDE) if isinstance(i, pytest.Function) and i.originalname == name]
    axes = list(zip(*samples._axes(cases), strict=True))
    assert len(axes) == (2 if name == "test_one" else 3)
    assert {len(set(axis)) for axis in axes} == sizes
    assert samples.left_out(cases)


DRAWN = """
import pytest

@pytest.fixture(params=["here", pytest.param("there", marks=pytest.mark.drawn(5))])
def place(request):
    return request.param

@pytest.mark.parametrize("case", range(30))
def test_one(place, case):
    pass

def test_two():
    pass
"""


def test_of_drawn_cases_some_run_and_of_others_all(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    items, out = pytester.getitems(DRAWN), set()
    for number in range(20):
        monkeypatch.setattr(samples, "seed", lambda number=number: str(number))
        left = samples.left_out(items)
        assert 10 <= len(left) < 30
        out.update(item.name for item in left)
    assert out == {f"test_one[there-{n}]" for n in range(30)} or out == {f"test_one[{n}-there]" for n in range(30)}
