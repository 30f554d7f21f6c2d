"""What Tracklog is made of, and what is known to be weak in it, as the reports of CI say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.audit import report
from scripts.sbom import write
from tests.support.loopback import Asked, Reply, loopback
from tests.tidy.tree import ROOT


def named(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_bill_of_materials_names_every_pinned_package_with_its_version(tmp_path: Path) -> None:
    target = tmp_path / "build" / "sbom.cdx.json"
    write(target)
    bill = json.loads(target.read_text(encoding="utf-8"))
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {(named(name), version) for name, _, version in (line.partition("==") for line in lines)}

    assert bill["bomFormat"] == "CycloneDX"
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("tracklog", "0.1.0")
    assert pinned - {(named(one["name"]), one["version"]) for one in bill["components"]} == set()
    assert all(one["purl"].startswith("pkg:pypi/") for one in bill["components"])
    assert str(ROOT) not in target.read_text(encoding="utf-8")


def known(asked: Asked) -> Reply:
    """As osv.dev answers: one weakness, of one package."""
    affected = {"package": {"name": "fastavro", "ecosystem": "PyPI"}, "ranges": [], "versions": ["1.0.0"]}
    weakness = {"id": "PYSEC-2099-1", "summary": "weak", "affected": [affected], "aliases": []}
    is_weak = asked.json["package"]["name"] == "fastavro"
    return Reply(body=json.dumps({"vulns": [weakness]} if is_weak else {}).encode())


@pytest.fixture
def osv() -> Iterator[str]:
    with loopback(known) as service:
        yield f"{service.url}/v1/query"


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("fastavro==1.0.0\nredis==6.0.0\n")
    return path


def test_a_known_weakness_is_in_the_report(osv: str, requirements: Path) -> None:
    found = report(requirements, "--osv-url", osv)
    assert found.weak == {"fastavro 1.0.0": ["PYSEC-2099-1"]}
    assert "1 of 2 packages" in str(found)


def test_a_service_that_is_away_is_no_clean_bill(requirements: Path) -> None:
    found = report(requirements, "--osv-url", "http://127.0.0.1:1/v1/query")
    assert found.failure
    assert "nothing is known" in str(found)
