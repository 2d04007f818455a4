"""docs/reference/project-file.md against the models: every key, with its default, and an example that loads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from instep.model import Deletes
from instep.project.load import load
from instep.project.project import Project
from instep.project.sections import channels, connector, databases, models, policies, reach, sources, tables
from instep.project.sections.values import Section
from instep.schema.policy.presets import PRESETS

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "project-file.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[Section]] = {
    "The file": models.ProjectFile,
    "Spark": models.Spark,
    "Sources: PostgreSQL": databases.PostgresSourceSection,
    "Sources: MySQL and MariaDB": databases.MySqlSourceSection,
    "Sources: TLS": reach.Tls,
    "Sources: SSH": reach.SshSection,
    "Sources: SQLite": sources.SqliteSourceSection,
    "Sources: files": sources.FilesSourceSection,
    "Sources: JDBC": sources.JdbcSourceSection,
    "Sources: connector": sources.ConnectorSourceSection,
    "Sources: connector limits": connector.ConnectorLimits,
    "Destinations: Iceberg": models.IcebergDestinationSection,
    "Destinations: Delta": models.DeltaDestinationSection,
    "Destinations: DuckDB": models.DuckDbDestinationSection,
    "Destinations: PostgreSQL": models.PostgresDestinationSection,
    "Policies": policies.PolicySection,
    "Policies: rules": policies.RuleSection,
    "Traces": channels.TracesSection,
    "Lineage": channels.LineageSection,
    "Connections": models.ConnectionSection,
    "Connections: tables": tables.TableSettings,
    "Connections: log": models.LogSection,
    "Connections: backfill_limits": models.BackfillSection,
    "Connections: maintain": models.MaintainSection,
    "Connections: include": models.Include,
    "Connections: exclude": models.Exclude,
    "Connections: downstream": models.DownstreamSection,
    "Connections: protect": models.ProtectSection,
    "Connections: detect": models.Detect,
    "Connections: schedule": models.Schedule,
    "Connections: notify": channels.Notify,
    "Notify": channels.Route,
    "Egress": channels.Egress,
    "Channels": channels.ChannelSection,
    "Channels: email": channels.EmailChannelSection,
    "Channels: slack": channels.PostChannelSection,
    "Channels: teams": channels.PostChannelSection,
    "Channels: webhook": channels.WebhookChannelSection,
    "Channels: apprise": channels.AppriseChannelSection,
}


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def keys(title: str) -> Iterator[tuple[str, str, str]]:
    """(key, default, what it says) of a section's table."""
    for line in section(title).splitlines():
        if match := re.fullmatch(r"\| `(\w+)` \| ?(.*?) ?\| ?(.*?) ?\|", line):
            yield match[1], match[2], match[3]


@pytest.mark.parametrize("title", SECTIONS)
def test_every_key_is_documented_with_its_default(title: str) -> None:
    fields = SECTIONS[title].model_fields
    said = {key: default for key, default, _ in keys(title)}
    if title.startswith("Channels: "):
        fields = {k: f for k, f in fields.items() if k not in channels.ChannelSection.model_fields}
    assert set(said) == set(fields)
    for key, field in fields.items():
        assert said[key] == ("required" if field.is_required() else _shown(field.default)), key


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, int | str):
        return str(default)
    return f"{default:g}" if isinstance(default, float) else ""


WORDS = [
    ("Sources: TLS", "mode", get_args(reach.TlsMode)),
    ("Policies", "preset", PRESETS),
    ("Policies", "backfill", get_args(policies.Backfill)),
    ("Policies", "removed", get_args(policies.Removed)),
    ("Policies", "on_invalid_value", get_args(policies.InvalidValue)),
    ("Policies: rules", "decide", get_args(policies.Action)),
    ("Connections: tables", "deletes", get_args(Deletes)),
    ("Connections: tables", "mode", get_args(tables.WrittenMode)),
    ("Connections: notify", "on", get_args(channels.Occasion)),
    ("Connections: notify", "severity", get_args(channels.Severity)),
    ("Channels: email", "tls", ("starttls", "tls", "none")),
    ("Connections: protect", "mode", get_args(models.ProtectSection.model_fields["mode"].annotation)),
]


@pytest.mark.parametrize(("title", "key", "words"), WORDS, ids=[f"{w[0]}: {w[1]}" for w in WORDS])
def test_every_word_of_a_key_is_documented(title: str, key: str, words: tuple[str, ...]) -> None:
    [said] = [text for name, _, text in keys(title) if name == key]
    assert [w for w in words if f"`{w}`" not in said] == []


def test_every_section_is_documented() -> None:
    titles = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert set(SECTIONS) == set(titles) - {"A complete example"}


@pytest.fixture
def example(tmp_path: Path) -> Project:
    [block] = re.findall(r"```yaml\n(.*?)```", section("A complete example"), re.DOTALL)
    secret = tmp_path / "billing"
    secret.write_text("from a file\n")
    tmp_path.joinpath("instep.yml").write_text(block.replace("/run/secrets/billing", str(secret)))
    names = ("PG_PASSWORD", "CATALOG_URI", "CATALOG_TOKEN", "INSTEP_SALT")
    return load(tmp_path, {name: f"http://{name.lower()}" for name in names})


def test_the_example_loads_and_every_reference_resolves(example: Project) -> None:
    assert example.connections == ("shop", "billing", "till")
    assert example.source("shop_pg").password == "http://pg_password"
    assert example.source("billing").password == "from a file"
    assert example.source("billing").read_timeout == 600
    assert example.source("till").path == str(example.root / "data" / "till.db")
    lake = example.destination("lake")
    assert (lake.catalog_type, lake.catalog_properties["uri"]) == ("rest", "http://catalog_uri")
    assert example.salt("shop") == b"http://instep_salt"
    assert example.spark().driver_memory == "2g"


def test_the_example_s_tables_are_what_the_page_says(example: Project) -> None:
    orders, clicks = (example.table("shop", ("public", name)) for name in ("orders", "clicks"))
    assert (orders.mode, orders.cursor, orders.lookback) == ("auto", "updated_at", 300)
    assert (clicks.mode, clicks.cursor) == ("append", "id")
    assert example.table("shop", ("public", "tags")).key == ("order_id", "tag")
    assert example.table("shop", ("public", "legacy_x")).on_invalid_value == "fail"
    assert example.selection("shop").off == {"public.scratch"}
    policy = example.policy("shop")
    assert (policy.name, policy.preset, len(policy.rules), len(policy.overrides)) == ("careful", "allow_all", 2, 1)
    assert example.policy("till").preset == "allow_all"


def test_the_example_shows_every_section() -> None:
    example = section("A complete example")
    shown = set(re.findall(r"(\w+):", example))
    assert set(models.ProjectFile.model_fields) - shown == {
        "engine_idle", "channels", "notify", "egress", "server_url", "four_eyes", "retention", "shelves", "traces",
        "lineage", "oidc",
    }  # fmt: skip
