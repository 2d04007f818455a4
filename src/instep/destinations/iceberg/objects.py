"""Object stores: pyiceberg's names of properties in the words of Iceberg for Java, for Spark."""

from __future__ import annotations

from collections.abc import Mapping

from instep.spark.jars import S3_IO

_S3 = ("s3://", "s3a://", "s3n://")


def for_java(warehouse: str, properties: Mapping[str, str]) -> dict[str, str]:
    """What Spark's catalog needs beside `properties`; nothing for a folder. Tables in S3 are read and written by
    `S3_IO`, without Hadoop's file systems."""
    if not warehouse.startswith(_S3) and "s3.endpoint" not in properties:
        return {}
    out = {"io-impl": S3_IO} if warehouse.startswith(_S3) else {}
    if region := properties.get("s3.region") or properties.get("client.region"):
        out["client.region"] = region
    if "s3.endpoint" in properties:
        virtual = properties.get("s3.force-virtual-addressing", "").casefold() == "true"
        out["s3.path-style-access"] = "false" if virtual else "true"
    return {k: v for k, v in out.items() if k not in properties}
