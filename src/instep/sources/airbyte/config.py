"""The configuration of an Airbyte connector, known before it is started."""

from __future__ import annotations

from typing import Literal

from instep.project.sections.sources import AirbyteSourceSection


class AirbyteConfig(AirbyteSourceSection):
    """The settings of an Airbyte connector."""

    type: Literal["airbyte"] = "airbyte"
    name: str = "airbyte"
    """That of the connection."""
    folder: str = ""
    """That of the project, at which relative paths of `command` begin."""
