"""A loaded project: its sections, and their settings with every reference resolved at the moment of use."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from instep.errors import ProjectError, argument
from instep.project.sections.channels import Channel, LineageSection, OidcSection, TracesSection
from instep.project.sections.detector import Detector, Layer, detector
from instep.project.sections.file_settings import Shelves
from instep.project.sections.models import ConnectionSection, Destination, Detect, ProjectFile, Spark
from instep.project.sections.policies import CHOOSERS, DAY, PolicySection, to_policy
from instep.project.sections.sources import Source
from instep.project.sections.tables import TableSettings
from instep.project.sections.values import Section
from instep.project.text.problems import suggestion_or_list
from instep.project.text.references import Environment, Reference
from instep.project.text.tree import Path as TreePath
from instep.project.text.tree import Tree
from instep.schema.policy.policy import Policy, Rule
from instep.schema.selection.selection import Pattern, Selection, patterns


@dataclass(frozen=True)
class ChosenPolicy:
    """The policy of a connection."""

    name: str
    """Name of a policy of the project file, "" for a preset."""
    section: PolicySection | None
    path: tuple[str, ...]
    """Path of the policy in that file."""


def chosen(connection: str, section: ConnectionSection, policies: Mapping[str, PolicySection]) -> ChosenPolicy:
    """Return the policy that a connection names, or the preset that it asks for; None: the default preset."""
    if section.policy in policies:
        return ChosenPolicy(section.policy, policies[section.policy], ("policies", section.policy))
    for key in CHOOSERS:
        if value := getattr(section, key):
            return ChosenPolicy("", PolicySection(preset=value), ("connections", connection, key))
    return ChosenPolicy("", None, ("policies", ""))


_CATALOG_FILE = "sqlite:///"
SectionT = TypeVar("SectionT", bound=Section)
ENGINES = ("spark", "local")
ENGINE = "INSTEP_ENGINE"
"""The variable with the engine of project files that name none, for small machines and CI."""


@dataclass(frozen=True)
class Project:
    """A project: its file, settings and environment."""

    file: Path
    """The project file."""
    model: ProjectFile
    """Content of the file, references unresolved."""
    tree: Tree
    environment: Environment
    digest: str = ""
    """Digest of the file's text."""

    @property
    def root(self) -> Path:
        return self.file.parent

    @property
    def name(self) -> str:
        return self.model.project or self.root.name

    @property
    def connections(self) -> tuple[str, ...]:
        """Names in the order of the file."""
        return tuple(self.model.connections)

    def of(self, connection: str) -> Project:
        """Return the project as one run of the connection has it, whatever is written meanwhile."""
        return self

    def for_connections(self, connections: Collection[str]) -> Project:
        """Return the project for a look at some of its connections."""
        return self

    def selected(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the named connections, or all; ProjectError for an unknown one or when there is none."""
        requested = tuple(names)
        for name in requested:
            self.connection(name)
        if not self.model.connections:
            raise ProjectError(
                f"{self.file.name} has no connections",
                hint="add one under connections: with a source and a destination",
            )
        return requested or self.connections

    def connection(self, name: str) -> ConnectionSection:
        section = self.model.connections.get(name)
        if section is None:
            raise self._unknown("connection", name, self.model.connections)
        return section

    def source_of(self, connection: str) -> str:
        """Return the name of the connection's source."""
        return self.connection(connection).source or next(iter(self.model.sources))

    def destination_of(self, connection: str) -> str:
        """Return the name of the connection's destination."""
        return self.connection(connection).destination or next(iter(self.model.destinations))

    def namespace_of(self, connection: str) -> str:
        """Return the destination namespace: the connection's own, else the destination's, else the connection's
        name."""
        common = self.common_namespace(self.destination_of(connection))
        return self.connection(connection).namespace or common or connection

    def common_namespace(self, destination: str) -> str:
        """Return the one that a destination has for connections without their own, "" for none."""
        section = self.model.destinations[destination]
        return str(self._resolved(section.namespace, ("destinations", destination, "namespace")))

    def store_url(self) -> str:
        """Return the control database's URL; a SQLite path is made absolute from the project's folder."""
        url = str(self._resolved(self.model.store, ("store",)))
        scheme, slashes, path = url.partition(":///")
        if scheme.startswith("sqlite") and slashes and path and not path.startswith((":memory:", "/")):
            return f"{scheme}:///{self.root / path}"
        return url

    @property
    def engine(self) -> str:
        """Return what reads rows, spark or local: the file's word, else INSTEP_ENGINE's, else spark."""
        if "engine" in self.model.model_fields_set:
            return self.model.engine
        named = self.environment.variables.get(ENGINE, "")
        if named and named not in ENGINES:
            raise ProjectError(
                f"the environment variable {ENGINE} is {named!r}", hint=f"set it to {' or '.join(ENGINES)}, or unset it"
            )
        return named or self.model.engine

    @property
    def spark_is_elsewhere(self) -> bool:
        """True if Spark runs on other machines."""
        spark = self.spark()
        return bool(spark.remote) or not spark.master.startswith("local")

    @property
    def works_elsewhere(self) -> bool:
        """True if work goes to other machines: with `engine: local` all of it stays here."""
        return self.engine == "spark" and self.spark_is_elsewhere

    def with_spark(self, master: str) -> Project:
        """Return the project as it is where its Spark work runs in a session of this master; "": over Connect."""
        where = {"master": master, "remote": ""} if master else {"remote": "given"}
        spark = self.model.spark.model_copy(update=where)
        return replace(self, model=self.model.model_copy(update={"spark": spark}))

    def with_package(self, source: str, package: str) -> Project:
        """Return the project as it is with another version of a source's connector."""
        section = self.model.sources[source].model_copy(update={"package": package})
        sources = {**self.model.sources, source: section}
        return replace(self, model=self.model.model_copy(update={"sources": sources}))

    def spark(self) -> Spark:
        """Return the section of Spark's settings."""
        return self._opened(self.model.spark, ("spark",))

    def source(self, name: str) -> Source:
        """Return the source's section, secrets included."""
        if name not in self.model.sources:
            raise self._unknown("source", name, self.model.sources)
        section = self._opened(self.model.sources[name], ("sources", name))
        return section.whole() if section.type == "connector" else section

    def destination(self, name: str) -> Destination:
        """Return the destination's section, secrets included."""
        if name not in self.model.destinations:
            raise self._unknown("destination", name, self.model.destinations)
        section = self._opened(self.model.destinations[name], ("destinations", name))
        uri = str(section.properties.get("uri", ""))
        if uri.startswith(_CATALOG_FILE):  # a path as others: wherever the command is started
            file = self.root / Path(uri.removeprefix(_CATALOG_FILE)).expanduser()
            section = section.model_copy(update={"properties": {**section.properties, "uri": f"{_CATALOG_FILE}{file}"}})
        return section

    def may_read_local_files(self, destination: str) -> bool:
        """Return whether metadata of a lake elsewhere may lead to files of this machine."""
        return True

    def may_follow_links(self, source: str) -> bool:
        """Return whether links in a folder of files may lead out of it."""
        return True

    def channel(self, name: str) -> Channel:
        """Return the channel's section, secrets included."""
        if name not in self.model.channels:
            raise self._unknown("channel", name, self.model.channels)
        return self._opened(self.model.channels[name], ("channels", name))

    def traces(self) -> TracesSection:
        """Return where spans go, secrets included."""
        return self._opened(self.model.traces, ("traces",))

    def lineage(self) -> LineageSection:
        """Return where OpenLineage events go, secrets included."""
        return self._opened(self.model.lineage, ("lineage",))

    def oidc(self) -> OidcSection:
        """Return the provider that people sign in at, its secret included."""
        return self._opened(self.model.oidc, ("oidc",))

    def salt(self, connection: str) -> bytes:
        """Return the secret for hashed columns, empty if none are hashed."""
        section = self.connection(connection)
        return str(self._resolved(section.salt, ("connections", connection, "salt"))).encode()

    def policy(self, connection: str) -> Policy:
        """Return the connection's policy, with its settings in the words of other products as rules and modifiers."""
        section = self.connection(connection)
        choice = chosen(connection, section, self.model.policies)
        policy = to_policy(choice.name, choice.section, section.tables, self.option_rules(connection))
        if section.backfill is None:
            return policy
        return replace(policy, modifiers={**policy.modifiers, "backfill": section.backfill})

    def option_rules(self, connection: str) -> tuple[Rule, ...]:
        """Return the rules that the options of a scheduled detector are translated to."""
        options = self.detector(connection)
        return options.rules() if options else ()

    def policy_place(self, connection: str) -> TreePath:
        """Return the place of the connection's preset and rules."""
        return chosen(connection, self.connection(connection), self.model.policies).path

    def detector(self, connection: str) -> Detector | None:
        """Return the options of a scheduled detector, if the connection or its source has any."""
        named = ("connections", connection), ("sources", self.source_of(connection))
        sections = self.connection(connection), self.model.sources[named[1][1]]
        layers = (Layer(path, s.app_options, s.table_options) for path, s in zip(named, sections, strict=True))
        return detector(tuple(layers), self.tree.lines)

    def detect(self, connection: str) -> Detect:
        """Return the detection settings: those of `detect:`, else translated from other settings."""
        section, options = self.connection(connection), self.detector(connection)
        detect = section.detect
        own = {name: getattr(detect, name) for name in detect.model_fields_set}
        if options:
            return Detect(**({"before_sync": options.enabled, "min_interval": options.frequency} | own))
        return Detect(**({"min_interval": DAY} | own)) if section.detect_and_propagate_schema_changes else detect

    def selection(self, connection: str) -> Selection:
        selection, options = self.connection(connection).selection(), self.detector(connection)
        if options is None:
            return selection
        return replace(
            selection,
            exclude_tables=(*selection.exclude_tables, *patterns(options.excluded_tables())),
            exclude_columns=(*selection.exclude_columns, *patterns(options.excluded_columns())),
        )

    def table(self, connection: str, ref: tuple[str, str]) -> TableSettings:
        """Return the settings of (schema, name). Of several patterns that match, the first that sets a key decides
        it."""
        path = ".".join(filter(None, ref))
        connection_section = self.connection(connection)
        values: dict[str, Any] = {"mode": connection_section.mode}
        for pattern in reversed(connection_section.table_keys.fitting(path)):
            section = connection_section.tables[pattern]
            values |= {field: getattr(section, field) for field in section.model_fields_set}
        return TableSettings.model_construct(**values)

    def freshness_targets(self, connection: str, refs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], float]:
        """Return the seconds that the rows of these tables may be old, of those that have such a target."""
        section = self.connection(connection)
        own_targets = {name: t.freshness for name, t in section.tables.items() if "freshness" in t.model_fields_set}
        if not own_targets:
            return dict.fromkeys(refs, section.freshness) if section.freshness else {}
        targets = {}
        for ref in refs:
            fitting = section.table_keys.fitting(".".join(filter(None, ref)))
            own = next((own_targets[name] for name in fitting if name in own_targets), None)
            if target := section.freshness if own is None else own:
                targets[ref] = target
        return targets

    def tables_named(self, connection: str) -> dict[str, tuple[str, ...]]:
        """Return the tables that the connection names one by one, with the columns that it gives other names."""
        named = self.connection(connection).tables.items()
        return {pattern: tuple(section.columns) for pattern, section in named if Pattern(pattern).is_exact}

    def follows_log(self, connection: str) -> bool:
        """Return whether some table of the connection follows the source's log."""
        section = self.connection(connection)
        return section.mode == "cdc" or any(t.mode == "cdc" for t in section.tables.values())

    def log_names(self, connection: str, own: str) -> tuple[str, str]:
        """Return (slot, publication) of a connection that follows a log: `own`, unless it names others."""
        section = self.connection(connection)
        return section.log.slot or own, section.log.publication or own

    def own_log_name(self, connection: str, installation: str = "") -> str:
        """Return the name of a connection's slot. Connections of one name in other projects have other slots, and so
        have projects of one name with stores of their own: `installation` is the store's id."""
        plain = re.sub(r"[^a-z0-9]+", "_", connection.lower()).strip("_")[:40]
        whose = "/".join(filter(None, (installation, self.name, connection)))
        return f"instep_{plain}_{hashlib.sha256(whose.encode()).hexdigest()[:8]}"

    def source_hash(self, source: str) -> str:
        """Return a digest of what is said of a source; no secret's value is in it."""
        text = json.dumps(_written(self.model.sources[source]), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def location_of(self, path: TreePath) -> str:
        """Return `instep.yml:<line>: <key>`, for messages."""
        return f"{self.file.name}:{self.tree.line(path)}: {'.'.join(map(str, path))}"

    def _unknown(self, what: str, name: str, names: Mapping[str, Any]) -> ProjectError:
        hint = f"add it to {self.file}, or use another name" if names else f"add one to {self.file}"
        if what == "connection" and "." in name:  # no connection has a dot in its name
            hint = f"a table is named by an option: `instep sync --table {argument(name)}`"
        return ProjectError(f"unknown {what} {name!r}{suggestion_or_list(name, names)}", hint=hint)

    @property
    def shelves(self) -> Shelves:
        """The folders that paths lead to which come through an API."""
        return Shelves.of(self.root, self.model.shelves, self.store_url(), self.model.egress.allow)

    def _opened(self, section: SectionT, path: TreePath) -> SectionT:
        """Return the section with every reference resolved, and paths that begin at the project's folder."""
        return self._placed(self._plain(section, path))

    def _plain(self, section: SectionT, path: TreePath) -> SectionT:
        """Return the section with every reference resolved; ProjectError where a value does not fit its place."""
        values = {name: self._resolved(getattr(section, name), (*path, name)) for name in type(section).model_fields}
        try:
            return type(section).resolved(**values)
        except ValidationError as error:
            wrong = {(*path, *detail["loc"]) for detail in error.errors(include_input=False)}
            text = "\n".join(
                f"{self.location_of(place)}: the referenced value does not fit here"
                for place in sorted(wrong, key=self._order)
            )
            raise ProjectError(text, hint="correct the variable or the file") from None

    def _order(self, path: TreePath) -> tuple[int, str]:
        return self.tree.line(path), str(path)

    def _placed(self, section: SectionT) -> SectionT:
        """Resolve relative paths against the project's folder, in nested sections too."""
        inner = {name: getattr(section, name) for name in type(section).model_fields}
        placed: dict[str, Any] = {k: self._placed(v) for k, v in inner.items() if isinstance(v, Section)}
        for name, several in inner.items():
            if isinstance(several, tuple):
                placed[name] = tuple(self._placed(v) if isinstance(v, Section) else v for v in several)
        for name in section.local_paths():
            if inner[name] and "://" not in inner[name]:
                placed[name] = str(self.root / Path(inner[name]).expanduser())
        return section.model_copy(update=placed)

    def _resolved(self, value: Any, path: TreePath) -> Any:
        if isinstance(value, Reference):
            return self.environment.resolve(value, self.location_of(path), path)
        if isinstance(value, Section):
            values = {name: getattr(value, name) for name in value.model_fields_set}
            resolved = {name: self._resolved(item, (*path, name)) for name, item in values.items()}
            return resolved if resolved != values else value
        if isinstance(value, dict):
            return {key: self._resolved(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            items = [self._resolved(item, (*path, at)) for at, item in enumerate(value)]
            return type(value)(items)
        return value


def _written(value: Any) -> Any:
    """Return a section's values as the file writes them, ready for JSON."""
    if isinstance(value, Section):
        return {name: _written(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value.text if isinstance(value, Reference) else value
