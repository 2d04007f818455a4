"""What a loaded project answers: settings with secrets resolved, and nothing of them anywhere else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from project_types import Loads

import instep
from instep.errors import ProjectError
from instep.project.sections.databases import MySqlSourceSection, PostgresSourceSection
from instep.project.sections.models import IcebergDestinationSection
from instep.project.sections.policies import OverrideSection
from instep.project.sections.sources import SqliteSourceSection
from instep.project.sections.tables import TableSettings
from instep.project.sections.values import as_text
from instep.project.text.references import Environment, Reference, read_env_file

SECRET = "correct horse"
PROJECT = """\
version: 1
project: shop
sources:
  pg:
    type: postgres
    host: ${env:PG_HOST:-db.local}
    port: ${env:PG_PORT:-5433}
    database: shop
    user: me
    password: ${env:PG_PASSWORD}
    tls: {ca: certs/ca.pem}
    include: public.*
    statement_timeout: 2m
  my: {type: mariadb, database: d, user: u, password: "${file:my.secret}", tls: {mode: verify-ca, ca: /etc/ca.pem}}
  lite: {type: sqlite, path: shop.db}
destinations:
  lake: {type: iceberg}
  remote:
    type: iceberg
    catalog: https://catalog.local/api
    warehouse: prod
    namespace: raw
    properties: {token: "${env:TOKEN}", header.x: 5, flag: true}
connections:
  c:
    source: pg
    destination: lake
    hash: ["public.customer.email"]
    salt: ${env:SALT}
    tables:
      public.orders: {mode: upsert, cursor: updated_at, lookback: 5m, key: id}
      public.log_*: {mode: append, enabled: false}
      "public.*": {mode: full_refresh, deletes: hard}
  d: {source: lite, destination: remote}
  e: {source: lite, destination: lake, namespace: other}
"""
VARIABLES = {"PG_PASSWORD": SECRET, "TOKEN": SECRET, "SALT": SECRET}


def test_postgres_settings(loads: Loads, tmp_path: Path) -> None:
    settings = loads(PROJECT, VARIABLES).source("pg")
    assert settings.type == "postgres"
    assert settings == PostgresSourceSection.resolved(
        type="postgres",
        host="db.local",
        database="shop",
        user="me",
        port=5433,
        password=SECRET,
        include=("public.*",),
        statement_timeout=120,
        tls={"ca": str(tmp_path / "certs/ca.pem")},
    )


def test_mysql_settings(loads: Loads, tmp_path: Path) -> None:
    (tmp_path / "my.secret").write_text(SECRET + "\n")
    settings = loads(PROJECT, {}).source("my")
    assert settings.type == "mariadb"
    expected = MySqlSourceSection.resolved(
        type="mariadb",
        host="localhost",
        database="d",
        user="u",
        password=SECRET,
        tls={"mode": "verify-ca", "ca": "/etc/ca.pem"},
    )
    assert settings == expected


def test_sqlite_settings(loads: Loads, tmp_path: Path) -> None:
    settings = loads(PROJECT, {}).source("lite")
    assert settings == SqliteSourceSection.resolved(type="sqlite", path=str(tmp_path / "shop.db"))


def test_iceberg_settings(loads: Loads, tmp_path: Path) -> None:
    project = loads(PROJECT, VARIABLES)
    lake, remote = project.destination("lake"), project.destination("remote")
    assert lake == IcebergDestinationSection.resolved(type="iceberg", warehouse=str(tmp_path / "lake"))
    assert isinstance(lake, IcebergDestinationSection)
    assert isinstance(remote, IcebergDestinationSection)
    assert (lake.catalog_type, lake.catalog_properties) == ("sqlite", {})
    assert (remote.warehouse, remote.catalog_type) == ("prod", "rest")
    properties = {"uri": "https://catalog.local/api", "token": SECRET, "header.x": "5", "flag": "true"}
    assert remote.catalog_properties == properties


@pytest.mark.parametrize(
    ("text", "variable", "engine", "elsewhere"),
    [
        ("", None, "spark", False),
        ("", "", "spark", False),
        ("", "local", "local", False),
        ("spark: {master: 'spark://host:7077'}", None, "spark", True),
        ("spark: {remote: 'sc://host:15002'}", None, "spark", True),
        ("spark: {master: '${env:M}'}", None, "spark", True),
        ("engine: local\nspark: {master: yarn}", "spark", "local", False),
        ("engine: spark", "local", "spark", False),
    ],
)
def test_spark_is_the_engine_unless_the_file_or_the_environment_says_local(
    loads: Loads, text: str, variable: str | None, engine: str, elsewhere: bool
) -> None:
    variables = {"M": "yarn"} | ({} if variable is None else {"INSTEP_ENGINE": variable})
    project = loads(PROJECT + text, variables)
    assert (project.engine, project.works_elsewhere) == (engine, elsewhere)


def test_an_engine_of_the_environment_that_is_none_is_named(loads: Loads) -> None:
    with pytest.raises(ProjectError, match="INSTEP_ENGINE is 'auto'") as error:
        _ = loads(PROJECT, {"INSTEP_ENGINE": "auto"}).engine
    assert error.value.hint == "set it to spark or local, or unset it"


def test_spark_settings(loads: Loads) -> None:
    text = PROJECT + "spark: {master: '${env:M:-local[2,4]}', conf: {spark.ui.enabled: false, spark.task.cpus: 1}}"
    spark = loads(text, {}).spark()
    assert (spark.master, spark.remote, spark.driver_memory) == ("local[2,4]", "", "")
    assert as_text(spark.conf) == {"spark.ui.enabled": "false", "spark.task.cpus": "1"}


def test_secrets_are_in_no_text(loads: Loads) -> None:
    project = loads(PROJECT, VARIABLES)
    settings = [project.source("pg"), project.destination("remote")]
    texts = [repr(project), str(project.model), repr(project.environment), repr(settings), str(settings[0])]
    texts += [project.source_hash("pg"), f"{settings[0]}", repr(project.model.sources["pg"])]
    assert not any(SECRET in text for text in texts)
    assert project.salt("c") == SECRET.encode()
    assert project.salt("d") == b""


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "instep.yml:10: sources.pg.password: the environment variable PG_PASSWORD is not set"),
        ({"PG_PASSWORD": SECRET, "PG_PORT": "x" + SECRET},
         "instep.yml:7: sources.pg.port: the referenced value does not fit here"),
        ({"PG_PASSWORD": SECRET, "PG_PORT": "70000"},
         "instep.yml:7: sources.pg.port: the referenced value does not fit here"),
    ],
)  # fmt: skip
def test_references_that_fail_when_used(loads: Loads, variables: dict[str, str], said: str) -> None:
    project = loads(PROJECT, variables)
    assert project.source("lite")
    with pytest.raises(ProjectError) as error:
        project.source("pg")
    assert error.value.message == said
    assert SECRET not in str(error.value)
    assert error.value.hint


def test_a_missing_secret_file(loads: Loads, tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as error:
        loads(PROJECT, {}).source("my")
    file = tmp_path / "my.secret"
    said = f"instep.yml:14: sources.my.password: the file {file} cannot be read: No such file or directory"
    assert error.value.message == said
    (tmp_path / "my.secret").write_bytes(b"\xff" + SECRET.encode())
    with pytest.raises(ProjectError, match="it is not UTF-8 text") as error:
        loads(PROJECT, {}).source("my")
    assert SECRET not in str(error.value)


def test_env_file(loads: Loads, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PG_PASSWORD=of the file\nPG_HOST=file.local\n")
    settings = loads(PROJECT, {"PG_HOST": "env.local"}).source("pg")
    assert (settings.password, settings.host) == ("of the file", "env.local")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\n# note\n\nexport B = two words \n", {"A": "1", "B": "two words"}),
        ("A='x # y'\nB=\"z\"\nC=x # note\nD=x#y", {"A": "x # y", "B": "z", "C": "x", "D": "x#y"}),
        ("A=\nB=a=b==", {"A": "", "B": "a=b=="}),
        ("\ufeffA=é", {"A": "é"}),
    ],
)
def test_env_file_forms(tmp_path: Path, text: str, expected: dict[str, str]) -> None:
    (tmp_path / ".env").write_text(text, encoding="utf-8")
    assert read_env_file(tmp_path / ".env") == expected


@pytest.mark.parametrize("line", [SECRET, "=" + SECRET, "1A=" + SECRET])
def test_a_wrong_env_file_does_not_tell_its_content(tmp_path: Path, line: str) -> None:
    (tmp_path / ".env").write_text(f"A=1\n{line}\n")
    with pytest.raises(ProjectError, match=r"\.env:2: not of the form NAME=value") as error:
        read_env_file(tmp_path / ".env")
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_an_env_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / ".env"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(ProjectError, match="cannot be read"):
        read_env_file(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:A}", "1"), ("x${env:A}y${env:B}z", "x1y2z"), ("${env:N:-d}", "d"), ("${env:N:-}", ""),
        ("${env:E:-d}", "d"), ("${env:E}", ""), ("${env:A:-d}", "1"), ("${file:f}", "of f"), ("${env:N:-a:-b}", "a:-b"),
    ],
)  # fmt: skip
def test_resolution(tmp_path: Path, text: str, value: str) -> None:
    (tmp_path / "f").write_text("of f\r\n")
    environment = Environment(tmp_path, {"A": "1", "B": "2", "E": ""})
    assert Reference(text).problem() == ""
    assert environment.resolve(Reference(text), "here") == value


@pytest.mark.parametrize(
    ("text", "pure"),
    [
        ("${env:A}", True),
        ("${env:A:-}", True),
        ("${file:a}${env:B}", True),
        ("${env:A:-x}", False),
        ("a${env:A}", False),
    ],
)
def test_pure_references_hold_no_part_of_the_value(text: str, pure: bool) -> None:
    assert Reference(text).pure is pure


@pytest.mark.parametrize(
    ("store", "url"),
    [
        ("", "sqlite:///{root}/.instep/state.db"),
        ("store: sqlite:///other/state.db", "sqlite:///{root}/other/state.db"),
        ("store: sqlite:////var/state.db", "sqlite:////var/state.db"),
        ("store: '${env:STORE}'", "postgresql+psycopg://me:secret@h/db"),
        ("store: '${env:NOT_SET:-sqlite:///x.db}'", "sqlite:///{root}/x.db"),
    ],
)
def test_store_url(loads: Loads, tmp_path: Path, store: str, url: str) -> None:
    project = loads(PROJECT + store, {"STORE": "postgresql+psycopg://me:secret@h/db"})
    assert project.store_url() == url.format(root=tmp_path)


def test_names(loads: Loads, tmp_path: Path) -> None:
    project = loads(PROJECT, {})
    assert (project.name, project.root, project.connections) == ("shop", tmp_path, ("c", "d", "e"))
    assert [project.source_of(c) for c in project.connections] == ["pg", "lite", "lite"]
    assert [project.namespace_of(c) for c in project.connections] == ["c", "raw", "other"]
    assert project.selected() == ("c", "d", "e")
    assert project.selected(["e"]) == ("e",)
    assert project.location_of(("sources", "pg", "user")) == "instep.yml:9: sources.pg.user"


@pytest.mark.parametrize(("verb", "word"), [("connection", "cc"), ("source", "ppg"), ("destination", "lakes")])
def test_unknown_names(loads: Loads, verb: str, word: str) -> None:
    with pytest.raises(ProjectError, match=f"unknown {verb} '{word}', did you mean"):
        getattr(loads(PROJECT, {}), verb)(word)


def test_the_only_source_and_destination_need_no_mention(loads: Loads) -> None:
    project = loads("sources: {a: {type: sqlite, path: x}}\ndestinations: {b: {type: iceberg}}\nconnections: {c: {}}")
    assert (project.source_of("c"), project.destination_of("c"), project.name) == ("a", "b", project.root.name)


def test_no_connections(loads: Loads) -> None:
    project = loads("sources: {a: {type: sqlite, path: x}}")
    with pytest.raises(ProjectError, match=r"instep\.yml has no connections") as error:
        project.selected()
    assert "add one" in error.value.hint


def test_table_options(loads: Loads) -> None:
    project = loads(PROJECT, {})
    assert project.table("c", ("public", "orders")) == TableSettings(
        mode="upsert", cursor="updated_at", lookback=300, deletes="hard", key=("id",)
    )
    assert project.table("c", ("public", "log_a")) == TableSettings(mode="append", deletes="hard", enabled=False)
    assert project.table("c", ("public", "items")) == TableSettings(mode="full_refresh", deletes="hard")
    assert project.table("c", ("billing", "items")) == TableSettings()


def test_the_hash_moves_with_what_the_file_says_of_a_source_and_not_with_secrets(loads: Loads) -> None:
    before = loads(PROJECT, VARIABLES).source_hash("pg")
    assert loads(PROJECT, {"PG_PASSWORD": "other"}).source_hash("pg") == before
    assert loads(PROJECT + "spark: {}\n# note", {}).source_hash("pg") == before
    assert loads(PROJECT.replace("lookback: 5m", "lookback: 6m"), {}).source_hash("pg") == before


@pytest.mark.parametrize(("old", "new"), [("PG_PASSWORD", "PG_PASS"), ("5433", "5434")])
def test_what_moves_the_hash(loads: Loads, old: str, new: str) -> None:
    before, after = (loads(text, {}).source_hash("pg") for text in (PROJECT, PROJECT.replace(old, new)))
    assert before != after


ROOT = Path(instep.__file__).parent
PURE = "schema/ imports the standard library only: the section makes its record, and takes the defaults from it"
REPEATED = {
    ("BackfillSection", "BackfillLimits"): PURE,
    ("MaintainSection", "Maintenance"): PURE,
    ("ModifierSection", "Modifiers"): PURE,
    ("ProtectSection", "Protect"): PURE,
    ("RuleSection", "Rule"): PURE,
    ("Notify", "NotificationRoute"): "what a query answers, with the connection that has it",
    ("Spark", "SparkSettings"): "of one session: with what its destination and its source's driver add",
}


def declared() -> dict[tuple[str, bool], set[str]]:
    """The fields that each class of the product declares itself, by its name and whether it is a section."""
    found = {}
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                own = [
                    f for f in node.body if isinstance(f, ast.AnnAssign) and "ClassVar" not in ast.unparse(f.annotation)
                ]
                found[node.name, file.parent.name == "sections"] = {ast.unparse(f.target) for f in own} - {"type"}
    return found


def test_a_setting_is_declared_in_one_class() -> None:
    """No class outside of the sections repeats four fields, and half, of what a section declares."""
    found = declared()
    repeated = {
        (section, other)
        for (section, is_section), fields in found.items()
        for (other, again), others in found.items()
        if is_section and not again and len(both := fields & others) > 3 and 2 * len(both) >= len(fields)
    }
    assert repeated == REPEATED.keys()


def test_a_setting_of_tables_has_one_declaration() -> None:
    """A new one is declared here, and used: no other class has more than five of them (such as name and key)."""
    found = declared()
    own = found.pop(("TableSettings", True))
    assert own == TableSettings.model_fields.keys() - OverrideSection.model_fields.keys()
    assert [name for (name, _), fields in found.items() if len(fields & own) > 5] == []
