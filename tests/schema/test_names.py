"""Names at the destination: kept where they can be, mapped the same way each time, never two into one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import TEXT

from events.shows import shows
from instep.errors import SchemaError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import parse
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.naming import SYSTEM, Naming, assign, collisions, destination_ref, quote, unusable

NAMING = Naming("lake", default_schema="public")
CLOSE = st.text(st.sampled_from("aAéÉſsSKk_.1 "), min_size=1, max_size=4).filter(str.strip)
"""Names that are hard to tell apart."""


def table(name: str, *columns: str, schema: str = "public") -> Table:
    return Table(schema, name, tuple(Column(c, parse("int32")) for c in columns))


def columns_of(*names: str, naming: Naming = NAMING) -> list[str]:
    named = assign(Catalog((table("t", *names),)), naming)
    return [c.alias for c in named.tables[0].columns]


KEPT = [
    "a",
    "A b",
    " a ",
    'say "hi"',
    "it's",
    "naïve",
    "cafe\u0301",
    "🦀",
    "日本語",
    "a/b",
    "select",
    "x" * 255,
    "a\tb",
]
MAPPED = [
    ("a dot", "a.b", "a_b_"),
    ("dots only", "..", "___"),
    ("too long", "x" * 256, "x" * 246 + "_"),
    ("too long in bytes", "é" * 128, "é" * 123 + "_"),
    ("too long, no character is cut", "🦀" * 64, "🦀" * 61 + "_"),
]


@pytest.mark.parametrize("name", KEPT)
def test_a_name_is_kept_where_it_can_be(name: str) -> None:
    assert columns_of(name) == [name]


@pytest.mark.parametrize(("what", "name", "start"), MAPPED)
def test_a_name_that_cannot_be_is_mapped_and_ends_in_its_hash(what: str, name: str, start: str) -> None:
    (alias,) = columns_of(name)
    assert alias.startswith(start), what
    assert len(alias) == len(start) + 8
    assert len(alias.encode()) <= NAMING.max_bytes
    assert columns_of(name) == [alias]


REFUSED = [
    ("empty", "", "an empty name"),
    ("spaces", "  ", "without a visible character"),
    ("zero width", "\u200b", "without a visible character"),
    ("NUL", "a\x00b", "a NUL"),
    ("lone surrogate", "a\ud800", "half a character"),
]


@pytest.mark.parametrize(("what", "name", "why"), REFUSED)
def test_a_name_that_nothing_can_hold_is_refused_with_its_place(what: str, name: str, why: str) -> None:
    with pytest.raises(SchemaError, match=f"a column of table public.t has .*{why}|{why}") as refused:
        columns_of("a", name)
    assert "public.t" in str(refused.value)
    with pytest.raises(SchemaError, match="a table of schema 'public'"):
        assign(Catalog((table(name, "a"),)), NAMING)
    found = unusable(Catalog((table("t", name),)), Catalog())
    assert why in found[("public", "t", name) if name else ("public", "t")]


def test_a_long_name_is_shortened_and_an_endless_one_stays_out_unless_it_is_accepted() -> None:
    question, endless = "Which? " * 1000, "n" * 65_537
    (alias,) = columns_of(question)
    assert len(alias.encode()) <= NAMING.max_bytes
    seen = Catalog((table("t", question, endless), table(endless, "a")))
    assert unusable(seen, Catalog()) == dict.fromkeys(
        [("public", "t", endless), ("public", endless)], "it has a name of 65,537 characters (65,536 are the most)"
    )
    assert unusable(seen, seen) == {}


TWINS = [
    ("case", ["a", "A"]),
    ("accented case", ["é", "É"]),
    ("long s", ["s", "ſ"]),
    ("Kelvin", ["k", "\u212a"]),
    ("mapped onto a kept name", ["a.b", "a_b"]),
]


@pytest.mark.parametrize(("what", "names"), TWINS)
def test_twins_get_names_of_their_own(what: str, names: list[str]) -> None:
    aliases = columns_of(*names)
    assert len({NAMING.fold(a) for a in aliases}) == len(names), what


@pytest.mark.parametrize("names", [["ß", "SS"], ["ﬀ", "FF"], ["ŉ", "ʼN"]])
def test_letters_whose_upper_case_is_two_make_no_twins(names: list[str]) -> None:
    """For no engine, so no destination refuses them."""
    assert columns_of(*names) == names
    assert len({Capabilities("lake").fold(n) for n in names}) == len(names)


def test_of_case_twins_the_first_is_kept_and_both_where_case_counts() -> None:
    first, second = columns_of("a", "A")
    assert first == "a"
    assert second.startswith("A_")
    assert columns_of("a", "A", naming=replace(NAMING, case_sensitive=True)) == ["a", "A"]


def test_the_two_forms_of_an_accent_are_two_names() -> None:
    assert columns_of("caf\u00e9", "cafe\u0301") == ["caf\u00e9", "cafe\u0301"]


@pytest.mark.parametrize("name", SYSTEM)
def test_a_column_named_like_a_system_column_is_prefixed(name: str) -> None:
    assert columns_of(f"_instep_{name}", f"_INSTEP_{name}"[:9]) == [f"src__instep_{name}", f"_INSTEP_{name}"[:9]]
    assert columns_of(f"_Instep_{name}") == [f"src__Instep_{name}"]
    assert columns_of(f"_fivetran_{name}", naming=replace(NAMING, prefix="_fivetran_")) == [f"src__fivetran_{name}"]
    taken, free = columns_of(f"_instep_{name}", f"src__instep_{name}")
    assert free == f"src__instep_{name}"
    assert taken.startswith(f"src__instep_{name}_")


TABLES = [
    ("of the default schema", "public", "orders", "orders"),
    ("of another", "sales", "orders", "sales__orders"),
    ("without a schema", "", "orders", "orders"),
    ("with spaces and quotes", "public", 'my "best" orders', 'my "best" orders'),
]


@pytest.mark.parametrize(("what", "schema", "name", "alias"), TABLES)
def test_table_names(what: str, schema: str, name: str, alias: str) -> None:
    named = assign(Catalog((table(name, "a", schema=schema),)), NAMING).tables[0]
    assert destination_ref(named, NAMING) == ("lake", alias), what


@pytest.mark.parametrize("name", ["../up", "a/b", "a.b", "a?b", "a#b", "a%20b", "a\nb", "."])
def test_a_table_name_that_would_leave_its_folder_is_mapped(name: str) -> None:
    alias = assign(Catalog((table(name, "a"),)), NAMING).tables[0].alias
    assert not set(alias) & set("./\\?#%\n")


def test_tables_of_two_schemas_that_would_share_a_name() -> None:
    three = [table("c", schema="a__b"), table("b__c", schema="a"), table("a__b__c")]
    aliases = {t.ref: t.alias for t in assign(Catalog.of(three), NAMING).tables}
    assert aliases["public", "a__b__c"] == "a__b__c"
    assert len(set(aliases.values())) == 3


def test_a_table_that_is_not_accepted_yet_has_no_name() -> None:
    with pytest.raises(SchemaError, match=r"public\.t has no name"):
        destination_ref(table("t"), NAMING)


WORLDS = st.lists(
    st.builds(
        lambda schema, name, columns: table(name, *columns, schema=schema),
        st.sampled_from(["public", "a", "A"]),
        CLOSE | TEXT.filter(lambda n: any(c.isalnum() for c in n)),
        st.lists(CLOSE | st.sampled_from(["_instep_id", "src__instep_id"]), min_size=1, max_size=8, unique=True),
    ),
    max_size=6,
    unique_by=lambda t: t.ref,
).map(Catalog.of)


@given(WORLDS, st.booleans(), st.sampled_from([32, 255]))
def test_names_map_injectively_and_stay(catalog: Catalog, case_sensitive: bool, max_bytes: int) -> None:
    naming = replace(NAMING, case_sensitive=case_sensitive, max_bytes=max_bytes)
    named = assign(catalog, naming)
    assert len({naming.fold(t.alias) for t in named.tables}) == len(named.tables)
    for t in named.tables:
        folded = {naming.fold(c.alias) for c in t.columns}
        assert len(folded) == len(t.columns)
        assert not folded & naming.system
        assert all(0 < len(a.encode()) <= max_bytes for a in [t.alias, *(c.alias for c in t.columns)])
    assert assign(named, naming) == named
    assert [replace(t, alias="") for t in catalog.tables] == [
        replace(t, alias="", columns=tuple(replace(c, alias="") for c in t.columns)) for t in named.tables
    ]


@given(WORLDS, WORLDS)
def test_a_later_arrival_renames_nothing(first: Catalog, later: Catalog) -> None:
    named = assign(first, NAMING)
    both = assign(Catalog.of([*named.tables, *(t for t in later.tables if t.ref not in named.by_ref)]), NAMING)
    assert all(both.get(t.ref) == t for t in named.tables)


LONG = "x" * 300
MET = [
    ("case", ["a", "A"], {"A": "a"}),
    ("the one that needs no change keeps it", ["A.b", "a_b"], {"A.b": "a_b"}),
    ("shortened", [LONG + "1", LONG + "2"], {LONG + "2": LONG + "1"}),
    ("a system column", ["_instep_id"], {"_instep_id": "_instep_id"}),
    ("nobody", ["a", "b", "a.b", LONG], {}),
]


@pytest.mark.parametrize(("what", "names", "told"), MET)
@shows(trap=7)
def test_what_meets_another_s_name(what: str, names: list[str], told: dict[str, str]) -> None:
    found = collisions(Catalog((table("t", *names),)), NAMING)
    assert {f.column.name if f.column else "": f.other for f in found} == told, what
    aliases = dict(zip(names, columns_of(*names), strict=True))
    assert all(f.column and f.alias == aliases[f.column.name] for f in found)


def test_what_has_its_alias_is_never_told() -> None:
    named = assign(Catalog((table("t", "a", "A"),)), NAMING)
    assert collisions(named, NAMING) == ()
    first, second = named.tables[0].columns
    later = replace(named.tables[0], columns=(replace(first, alias=""), second))
    assert collisions(Catalog((later,)), NAMING) == ()
    new = replace(second, name="\u017f", alias="")
    later = replace(named.tables[0], columns=(replace(first, name="s", alias="s"), second, new))
    assert [(f.column, f.other) for f in collisions(Catalog((later,)), NAMING)] == [(new, "s")]


@given(WORLDS)
def test_collisions_name_what_is_renamed_for_another(catalog: Catalog) -> None:
    told = {(found.table.ref, found.column.name) for found in collisions(catalog, NAMING) if found.column}
    for t in assign(catalog, NAMING).tables:
        moved = {c.name for c in t.columns if c.alias != c.name and "." not in c.name}
        assert all((t.ref, name) in told for name in moved)
        assert all(t.by_name[name].alias != name for ref, name in told if ref == t.ref)


def test_aliases_that_are_double_already_are_refused() -> None:
    columns = tuple(Column(n, parse("int32"), alias="x") for n in "ab")
    with pytest.raises(SchemaError, match=r"table public\.t: the name x is used twice"):
        assign(Catalog((replace(table("t"), columns=columns),)), NAMING)


@pytest.mark.parametrize("wrong", [{"namespace": ""}, {"namespace": " "}, {"namespace": "x", "max_bytes": 8}])
def test_a_naming_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SchemaError):
        Naming(**wrong)  # type: ignore[arg-type]


QUOTED = [
    ("a", "ansi", '"a"'),
    ('a"b', "ansi", '"a""b"'),
    ("a`b", "mysql", "`a``b`"),
    ("a`b", "spark", "`a``b`"),
    ('"; drop table t; --', "ansi", '"""; drop table t; --"'),
    ("select", "spark", "`select`"),
]


@pytest.mark.parametrize(("name", "style", "quoted"), QUOTED)
@shows(trap=7)
def test_identifiers_are_always_quoted(name: str, style: str, quoted: str) -> None:
    assert quote(name, style) == quoted  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a\x00"])
def test_what_cannot_be_an_identifier_is_refused(name: str) -> None:
    with pytest.raises(SchemaError):
        quote(name)
