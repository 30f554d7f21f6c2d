"""Kubernetes' own programs for tests: where they are, and how they are called. `TRACKLOG_K8S_BIN` names the folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

__all__ = ["CRDS", "tool", "tool_done", "write_schemas"]

CRDS: Final = Path(__file__).resolve().parent.parent / "kubernetes" / "crds.yaml"
TOOL_S: Final = 120.0


def tool(name: str) -> str:
    """The path of a program; the test is skipped where it is not, with what to do."""
    folder = os.environ.get("TRACKLOG_K8S_BIN", "")
    found = shutil.which(name, path=folder) if folder else None
    found = found or (shutil.which(name) if name == "etcd" else None)
    if found is None:
        what = "apt-get install etcd-server" if name == "etcd" else "TRACKLOG_K8S_BIN names no folder with it"
        pytest.skip(f"no {name} here: {what}")
    return found


def tool_done(
    name: str, *words: str, stdin: str | None = None, environ: Mapping[str, str] | None = None, bound_s: float = TOOL_S
) -> subprocess.CompletedProcess[str]:
    """Runs one to its end, whatever its exit code."""
    return subprocess.run(
        [tool(name), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=bound_s,
        env={**os.environ, **(environ or {})},
        check=False,
    )


def write_schemas(folder: Path) -> str:
    """JSON schemas of the custom kinds for kubeconform, unknown fields refused; returns the location to give it."""
    folder.mkdir(parents=True, exist_ok=True)
    for crd in yaml.safe_load_all(CRDS.read_text(encoding="utf-8")):
        group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"]
        for version in crd["spec"]["versions"]:
            schema = _strict(version["schema"]["openAPIV3Schema"])
            schema["properties"] |= {"apiVersion": {"const": f"{group}/{version['name']}"}, "kind": {"const": kind}}
            schema["properties"]["metadata"] = {"type": "object"}
            name = f"{kind.lower()}-{group.partition('.')[0]}-{version['name']}.json"
            (folder / name).write_text(json.dumps(schema), encoding="utf-8")
    return f"{folder}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {name: _strict(child) for name, child in node.items()}
    if made.get("type") == "object" and "properties" in made:
        made["additionalProperties"] = False
    if made.pop("x-kubernetes-int-or-string", False):
        made["type"] = ["string", "integer"]
    return made
