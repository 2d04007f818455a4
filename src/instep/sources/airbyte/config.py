"""The configuration of an Airbyte connector, known before it is started."""

from __future__ import annotations

from typing import Literal

from instep.project.sections.sources import AirbyteSourceSection


class AirbyteConfig(AirbyteSourceSection):
    """`name` is that of the connection, `folder` that of the project, at which relative paths of `command` begin."""

    type: Literal["airbyte"] = "airbyte"
    name: str = "airbyte"
    folder: str = ""
