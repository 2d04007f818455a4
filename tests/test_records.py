"""What `instep.records` makes behaves as what `dataclasses` makes; each case is told of both, and must be the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar

import pytest

from instep import records

PLAIN = "a: int\nb: str = 'x'\nc: tuple[int, ...] = ()"
BODIES = {
    "plain": (PLAIN, [(1,), (1, "y"), (2, "x", (3,))]),
    "empty": ("", [()]),
    "one": ("a: float", [(1.0,), (2.0,)]),
    "made": ("a: int\nb: list[int] = field(default_factory=list, hash=False)", [(1,), (1, [2])]),
    "not shown": ("a: int\nb: str = field(default='', repr=False)", [(1, "s")]),
    "not compared": ("a: int\nb: int = field(default=0, compare=False)", [(1, 2), (1, 3)]),
    "not given": ("a: int\nb: int = field(init=False, default=3)", [(1,)]),
    "not given, but made": ("a: int\nb: list[int] = field(init=False, default_factory=list)", [(1,)]),
    "by keyword": ("a: int = field(default=1, kw_only=True)\nb: int = 2", [(), (3,)]),
    "of the class": ("kind: ClassVar[str] = 'k'\na: int = 0", [(), (1,)]),
    "looked at": ("a: int\ndef __post_init__(self): object.__setattr__(self, 'a', self.a + 1)", [(1,)]),
    "with its own": (
        "a: int\ndef __eq__(self, other): return True\ndef __repr__(self): return 'mine'\n"
        "def __init__(self, a): object.__setattr__(self, 'a', -a)",
        [(1,), (2,)],
    ),
    "with its own hash": ("a: int\ndef __hash__(self): return 5", [(1,)]),
}  # fmt: skip


def made(dataclass: Callable[..., Any], body: str, *bases: type) -> Any:
    space: dict[str, Any] = {"field": field, "ClassVar": ClassVar, "__name__": __name__}
    exec(
        "class C(*bases):\n x = 0\n" + "".join(f" {line}\n" for line in body.splitlines()),
        space | {"bases": bases},
        space,
    )
    return dataclass(frozen=True)(space["C"])


def told(call: Callable[[], Any]) -> Any:
    """What comes of it, or the error."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def story(cls: Any, values: list[tuple[Any, ...]]) -> list[Any]:
    """Everything that can be seen of a class and of some of its objects."""
    first, *_ = objects = [cls(*value) for value in values]
    return [
        [(f.name, f.type, f.init, f.repr, f.compare, f.hash, f.kw_only) for f in fields(cls)],
        cls.__match_args__, [(p.name, p.kind, p.annotation) for p in inspect.signature(cls).parameters.values()],
        first == object(), len(objects),
        [repr(one) for one in objects], [vars(one) for one in objects], [dataclasses.asdict(one) for one in objects],
        [[one == other for one in objects] for other in objects], [told(lambda one=one: hash(one)) for one in objects],
        [copy.deepcopy(one) == one for one in objects],
        *(told(lambda name=name: setattr(first, name, 1)) for name in ("a", "other")),
        *(told(lambda name=name: delattr(first, name)) for name in ("a", "other")),
        told(lambda: cls(1, 2, 3, 4, 5)), told(lambda: cls(unknown=1)), told(lambda: replace(first, x=1)),
        told(lambda: repr(replace(first, a=9))),
    ]  # fmt: skip


@pytest.mark.parametrize(("body", "values"), BODIES.values(), ids=list(BODIES))
def test_it_is_as_of_the_standard_library(body: str, values: list[tuple[Any, ...]]) -> None:
    ours, theirs = made(records.dataclass, body), made(dataclasses.dataclass, body)
    assert story(ours, values) == story(theirs, values)


MAKERS = {"ours": records.dataclass, "theirs": dataclasses.dataclass}


@pytest.mark.parametrize("base", MAKERS.values(), ids=list(MAKERS))
@pytest.mark.parametrize("sub", MAKERS.values(), ids=list(MAKERS))
def test_classes_of_both_kinds_inherit(base: Callable[..., Any], sub: Callable[..., Any]) -> None:
    parent = made(base, PLAIN)
    child = made(sub, "d: int = 7\nb: str = 'z'", parent)
    assert repr(child(1)) == "C(a=1, b='z', c=(), d=7)"
    assert child(1) == child(1) != child(2)
    assert child(1) != parent(1, "z")
    for name in ("a", "d"):
        with pytest.raises(FrozenInstanceError):
            setattr(child(1), name, 2)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        dataclasses.dataclass(type("M", (child,), {}))
    bare = type("Bare", (parent,), {})(1)
    bare.more = 2
    assert bare.more == 2
    with pytest.raises(FrozenInstanceError):
        bare.a = 2


@records.dataclass(frozen=True)
class Kept:
    """Where it can be found by its name."""

    a: int
    inner: Kept | None = None


def test_objects_are_pickled_and_matched() -> None:
    kept = Kept(1, Kept(2))
    assert pickle.loads(pickle.dumps(kept)) == kept
    match kept:
        case Kept(1, Kept(a)):
            assert a == 2
        case _:
            pytest.fail("not matched")
    assert Kept.__doc__ == "Where it can be found by its name."


def test_other_options_are_those_of_the_standard_library() -> None:
    ordered = records.dataclass(frozen=True, order=True)(type("O", (), {"__annotations__": {"a": int}}))
    changing = records.dataclass(type("P", (), {"__annotations__": {"a": int}}))
    assert ordered(1) < ordered(2)
    one = changing(1)
    one.a = 2
    assert one == changing(2)
