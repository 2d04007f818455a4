"""No trap and no schema event is without a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from events.shows import EVENTS, LATER, PARTLY, TRAPS, marks, shows

NUMBERS = [("trap", n) for n in TRAPS] + [("event", n) for n in EVENTS]
SHOWN: dict[tuple[str, int], list[str]] = {}
for _what, _number, _test in marks():
    SHOWN.setdefault((_what, _number), []).append(_test)


@pytest.mark.parametrize(("what", "number"), NUMBERS)
def test_every_number_is_shown(what: str, number: int) -> None:
    if what == "event" and number in LATER:
        assert (what, number) not in SHOWN, "it is shown by now: take it off the list of what comes later"
        return
    title = (TRAPS if what == "trap" else EVENTS)[number]
    assert SHOWN.get((what, number)), f"no test shows {what} {number}: {title}"


def test_the_numbers_are_all_there() -> None:
    assert list(TRAPS) == list(range(1, 19))
    assert list(EVENTS) == list(range(41, 73))
    assert set(SHOWN) <= set(NUMBERS)
    assert all(tuple(name.split()) in {(w, str(n)) for w, n in SHOWN} for name in PARTLY)


def test_a_number_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no trap 19"):
        shows(trap=(1, 19))
    with pytest.raises(ValueError, match="no event 40"):
        shows(event=40)


def test_marks_are_read_from_the_text(tmp_path: Path) -> None:
    tmp_path.joinpath("test_x.py").write_text(
        "@shows(trap=1)\n@other\ndef test_a(): ...\n"
        "class TestB:\n    @shows(event=(41, 42))\n    def test_b(self): ...\n"
    )
    assert sorted(marks(tmp_path)) == [
        ("event", 41, "test_x.py::test_b"), ("event", 42, "test_x.py::test_b"), ("trap", 1, "test_x.py::test_a"),
    ]  # fmt: skip
