"""How a suite came out as a JUnit file, which CI systems show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from tracklog.consumers.suite import Came, Outcome
from tracklog.consumers.trajectory_replay import divergence_lines

__all__ = ["junit_xml"]

NAME: Final = "tracklog replay"
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML can hold, not even escaped."""


def junit_xml(outcomes: Sequence[Outcome], seconds: float) -> bytes:
    """One test case a run: a divergence is a failure, with its cause as the type; what was not replayed, an error."""
    suite = ET.Element(
        "testsuite",
        name=NAME,
        tests=str(len(outcomes)),
        failures=str(sum(one.came is Came.DIVERGED for one in outcomes)),
        errors=str(sum(one.came in (Came.REFUSED, Came.LIMIT) for one in outcomes)),
        time=f"{seconds:.3f}",
    )
    for one in outcomes:
        where = NAME if one.run.file is None else str(one.run.file)
        case = ET.SubElement(
            suite, "testcase", classname=_plain(where), name=_plain(one.run.trajectory_id), time=f"{one.seconds:.3f}"
        )
        if one.report is not None and one.report.divergence is not None:
            first, *more = divergence_lines(one.report)
            failure = ET.SubElement(case, "failure", message=_plain(first), type=one.report.divergence.cause.value)
            failure.text = _plain("\n".join([first, *more]))
        elif one.came is not Came.CLEAN:
            ET.SubElement(case, "error", message=_plain(one.problem), type=one.came.value)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _plain(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)
