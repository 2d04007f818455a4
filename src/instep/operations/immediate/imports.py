"""Take over another product's configuration: its export becomes a project file, and the store adopts its states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from instep.operations.spec import ImmediateRequest, ImmediateSpec
from instep.operations.values import ImportedProduct, LeadsTo, Length, SettingText


@dataclass(frozen=True)
class ImportConfigurationRequest(ImmediateRequest):
    """Make a project file of an export of Airbyte or Fivetran. Connections of the export that are here already, and
    have not been synced yet, read on from its states, and are compared with its catalogs first. No file is written:
    the answer has the text of instep.yml. Secrets of the export become references, and are neither stored nor
    answered."""

    product: ImportedProduct
    """Source of the export."""
    files: Annotated[dict[str, Any], Length(1, 1000), LeadsTo("spec")] = field(repr=False)
    """The JSON documents of the export, each below the name of its file: answers of the product's API, or a Terraform
    state of Airbyte's provider."""
    connectors: Annotated[tuple[Annotated[str, Length(1, 200)], ...], Length(0, 1000), LeadsTo("setting")] = ()
    """Versions of connectors that the export does not tell, such as source-faker==7.2.1."""
    warehouse: SettingText = ""
    """An Iceberg warehouse for connections whose destination instep does not have; none: they are left out."""


SPEC = ImmediateSpec(
    "import_configuration",
    role="admin",
    route="POST /import",
    request=ImportConfigurationRequest,
    result="instep.control.imports:ImportedConfiguration",
    work="instep.control.imports:ConfigurationImport",
    audit="import.{product}",
    target="the project",
    whole=True,
)
