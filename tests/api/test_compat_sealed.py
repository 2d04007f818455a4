"""Documents that only the compatible API knows: whatever shape they have, what their keys call a secret is sealed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.control.compat import CompatDocuments
from instep.errors import Conflict, InstepError
from instep.store.engine.keyring import Keyring, new_key, parse
from instep.store.store import Store

CANARY = "canary-5d21"
STARS = "******"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    at: Path = tmp_path_factory.mktemp("kept") / "state.db"
    with Store(f"sqlite:///{at}", keys=Keyring(parse(new_key("k"), ""))) as opened:
        yield opened


@pytest.fixture
def kept(store: Store) -> Iterator[CompatDocuments]:
    made = CompatDocuments(store)
    yield made
    if made.get("foreign", "desk"):
        made.delete("foreign", "desk")
    assert store.secrets.of("foreign", "desk") == [], "a document takes its secrets along"


# what is sent, what is shown, what whoever uses it gets
SHAPES: list[tuple[str, Any, Any, Any]] = [
    ("a secret", {"password": "p"}, {"password": STARS}, {"password": "p"}),
    ("in a list", {"keys": [{"api_key": "a"}, {"api_key": "b"}]}, {"keys": [{"api_key": STARS}] * 2},
     {"keys": [{"api_key": "a"}, {"api_key": "b"}]}),
    ("below a key that is one", {"secrets": {"any": {"x": "s", "n": 1}}},
     {"secrets": {"any": {"x": STARS, "n": STARS}}},
     {"secrets": {"any": {"x": "s", "n": "1"}}}),
    ("a list of them", {"tokens": ["a", "", None]}, {"tokens": [STARS, "", None]}, {"tokens": ["a", "", None]}),
    ("a password in a URL", {"at": "postgres://u:p@h/db"}, {"at": STARS}, {"at": "postgres://u:p@h/db"}),
    ("a login without one", {"at": "postgres://u@h/db"}, {"at": "postgres://u@h/db"}, {"at": "postgres://u@h/db"}),
    ("what looks like a reference", {"host": "${secret:1}"}, {"host": STARS}, {"host": "${secret:1}"}),
    ("a switch", {"password": True}, {"password": True}, {"password": True}),
    ("a number", {"pin_secret": 42}, {"pin_secret": STARS}, {"pin_secret": "42"}),
    ("nothing", {}, {}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "sent", "shown", "opened"), SHAPES, ids=[name for name, *_ in SHAPES])
def test_shapes(kept: CompatDocuments, name: str, sent: Any, shown: Any, opened: Any) -> None:
    assert kept.put("foreign", "desk", sent, who="ann").spec == shown
    found = kept.get("foreign", "desk")
    assert found is not None
    assert found.spec == shown == kept.page("foreign")[0].spec
    assert kept.opened("foreign", "desk") == opened
    kept.put("foreign", "desk", found.spec, who="bo")
    assert kept.opened("foreign", "desk") == opened, "what was read, sent again, changes nothing"


# a document, what is sent afterwards, what is opened then, how many secrets are kept
CHANGES: list[tuple[str, Any, Any, Any, int]] = [
    ("another secret", {"token": "a"}, {"token": "b"}, {"token": "b"}, 1),
    ("taken away", {"token": "a", "url": "x"}, {"url": "x"}, {"url": "x"}, 0),
    ("emptied", {"token": "a"}, {"token": ""}, {"token": ""}, 0),
    ("kept by stars, beside a new one", {"token": "a"}, {"token": STARS, "secret": "b"},
     {"token": "a", "secret": "b"}, 2),
    ("stars where none was", {"url": "x"}, {"token": STARS}, {"token": STARS}, 0),
    ("stars at another place", {"a": {"token": "a"}}, {"b": {"token": STARS}}, {"b": {"token": STARS}}, 0),
    ("a plain value of stars", {"token": "a"}, {"token": STARS, "name": STARS}, {"token": "a", "name": STARS}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "before", "sent", "opened", "count"), CHANGES, ids=[name for name, *_ in CHANGES])
def test_changes(
    store: Store, kept: CompatDocuments, name: str, before: Any, sent: Any, opened: Any, count: int
) -> None:
    kept.put("foreign", "desk", before, who="ann")
    kept.put("foreign", "desk", sent, who="ann")
    assert kept.opened("foreign", "desk") == opened
    assert len(store.secrets.of("foreign", "desk")) == count, "none is left of what it was"


NAMES = st.sampled_from(["token", "password", "client_secret", "apiKey", "host", "n", "a/b~c", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.sampled_from([CANARY, "", "plain", "a:b@c", f"http://u:{CANARY}@h/"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def leaves(value: Any, named: bool = False) -> Iterator[tuple[Any, bool]]:
    """Each value, and whether a key above calls it a secret."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, named or key in ("token", "password", "client_secret", "apiKey"))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, named)
    else:
        yield value, named


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_whatever_is_sent_comes_back_and_no_secret_is_shown(
    store: Store, kept: CompatDocuments, document: dict[str, Any]
) -> None:
    shown = kept.put("foreign", "desk", document, who="ann").spec
    stored = store.objects.get("foreign", "desk")
    assert kept.opened("foreign", "desk") == document
    for (value, named), (seen, _) in zip(leaves(document), leaves(shown), strict=True):
        hidden = isinstance(value, str) and value != "" and (named or value.startswith("http://u:"))
        assert seen == (STARS if hidden else value)
    known = {value for value, named in leaves(document) if not named}
    if CANARY not in known:
        assert CANARY not in json.dumps(stored.spec if stored else "")


def test_names(kept: CompatDocuments) -> None:
    kept.put("foreign", "desk", {"token": "a"}, who="ann", new=True)
    with pytest.raises(Conflict, match="there is a foreign desk already"):
        kept.put("foreign", "desk", {"token": "b"}, who="ann", new=True)
    assert kept.opened("foreign", "desk") == {"token": "a"}, "nothing of it was done"
    with pytest.raises(InstepError, match="there is no webhook 'desk'"):
        kept.opened("webhook", "desk")
    assert kept.get("group", "desk") is None
