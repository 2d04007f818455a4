"""Words that other products have for destinations and their settings: which type each is, what is only told back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instep.api.compat.envelope import Refusal
from instep.api.compat.services import MASK

TYPES: Mapping[str, str] = {
    **{type: type for type in ("postgres", "duckdb", "iceberg", "delta")},
    "postgres_warehouse": "postgres", "postgres_rds_warehouse": "postgres", "aurora_postgres_warehouse": "postgres",
    "azure_postgres_warehouse": "postgres", "postgres_gcp_warehouse": "postgres",
    "managed_data_lake": "iceberg", "new_s3_datalake": "iceberg",
}  # fmt: skip
"""Service to the type of a destination."""
NO_EFFECT = frozenset((
    "connection_type", "auth", "auth_type", "auth_method", "always_encrypted", "is_private_link_required",
    "table_format", "storage_provider", "fivetran_role_arn", "region", "snapshot_retention_period",
))  # fmt: skip
"""Settings that are kept and told back."""
_NO_EFFECT_PREFIXES = ("tunnel_", "client_")
_LAKE = ("bucket", "prefix_path")
DIRECTLY = "Directly"


@dataclass(frozen=True)
class Understood:
    """`spec` are settings of ours, `told` what is kept beside them because its client reads it back."""

    spec: Mapping[str, Any]
    told: Mapping[str, Any]


def type_of(service: str) -> str:
    """Return the type of a destination's service. Refusal: 400 for one that is not there."""
    if service not in TYPES:
        raise Refusal(400, f"There is no destination of service {service}; there are {', '.join(TYPES)}.")
    return TYPES[service]


def service_of(type: str, said: object) -> str:
    """Return the word for a type; of several, the one that its client has `said`."""
    return said if isinstance(said, str) and TYPES.get(said) == type else type


def understood(service: str, config: Mapping[str, Any]) -> Understood:
    """Return a config's settings by our names. Refusal: 400 for a destination that is not reached directly."""
    if (way := config.get("connection_type")) not in (None, "", DIRECTLY):
        raise Refusal(400, f"A destination is reached directly; connection_type {way} is not there.")
    told = {k: v for k, v in config.items() if k in NO_EFFECT or k.startswith(_NO_EFFECT_PREFIXES)}
    spec = {k: v for k, v in config.items() if k not in told and v != MASK and k != "type"}
    if isinstance(port := spec.get("port"), str) and port.isdecimal():
        spec["port"] = int(port)
    if service != TYPES[service] and TYPES[service] == "iceberg":
        parts = [str(spec.pop(key)).strip("/") for key in _LAKE if spec.get(key)]
        told |= {key: config[key] for key in _LAKE if key in config}
        spec |= {"warehouse": f"s3://{'/'.join(parts)}"} if parts else {}
    return Understood(spec, {k: v for k, v in told.items() if v != MASK})
