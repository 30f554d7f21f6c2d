"""Edited arguments against the schema that the model was shown: for those who have no tools."""

from __future__ import annotations

from typing import Any

import orjson

from tracklog.infra.blobs import BlobStore
from tracklog.producers.tool_schema import schema_problem
from tracklog.schemas.errors import BlobError

__all__ = ["misfit"]


def misfit(blobs: BlobStore, schemas: bytes, tool: str, arguments: str) -> str:
    """What is wrong with arguments, a JSON object, for a tool; "" for nothing. `schemas`: hash of those recorded.

    Where they cannot be had, nothing is: whoever takes the decision has the tools, and checks it.
    """
    try:
        shown: list[dict[str, Any]] = orjson.loads(blobs.get(schemas.hex()))
    except BlobError:
        return ""
    functions = [one["function"] for one in shown]
    found = next((one for one in functions if one["name"] == tool), None)
    return "" if found is None else schema_problem(found["parameters"], orjson.loads(arguments))
