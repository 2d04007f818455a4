"""Where traces and lineage go, for those who collect them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from instep.project.sections.values import Seconds, Secret, Section, Text, Url

Timeout = Annotated[Seconds, Field(gt=0, le=30)]


class TracesSection(Section):
    """Traces, sent to the `url` of a collector that accepts OTLP over HTTP, such as https://collector:4318/v1/traces;
    empty: no traces. `headers` are secrets. `sample` is the share of runs that is traced."""

    files: ClassVar[tuple[str, ...]] = ("ca",)
    url: Url = ""
    headers: dict[str, Secret] = Field(default_factory=dict)
    sample: Annotated[float, Field(gt=0, le=1)] = 1.0
    timeout: Timeout = 10
    ca: Text = ""


class LineageSection(Section):
    """OpenLineage events, sent to a `url` such as https://marquez/api/v1/lineage or appended to a `file`; without
    either none are written. `namespace` of the jobs; empty: the project's name."""

    files: ClassVar[tuple[str, ...]] = ("ca", "file")
    url: Url = ""
    file: Text = ""
    namespace: Text = ""
    headers: dict[str, Secret] = Field(default_factory=dict)
    timeout: Timeout = 10
    ca: Text = ""

    @model_validator(mode="after")
    def _one_way(self) -> LineageSection:
        if self.url and self.file:
            raise PydanticCustomError("lineage", "lineage goes to a url or to a file: name one of them")
        return self

    @property
    def on(self) -> bool:
        return bool(self.url or self.file)


_DAY = 86_400.0
RetentionSeconds = Annotated[Seconds, Field(ge=_DAY)]


class RetentionSection(Section):
    """Ages after which records are deleted: `runs` with their tables, `events` that are not history, `deliveries` of
    notifications and `jobs` after their end; `rollouts` after their last change. At least one day each."""

    runs: RetentionSeconds = 90 * _DAY
    events: RetentionSeconds = 90 * _DAY
    deliveries: RetentionSeconds = 90 * _DAY
    jobs: RetentionSeconds = 30 * _DAY
    rollouts: RetentionSeconds = 90 * _DAY

    def period(self, what: str) -> timedelta:
        return timedelta(seconds=float(getattr(self, what)))
