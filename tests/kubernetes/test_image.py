"""The files that images are made of: clean to hadolint, nothing of this machine goes into a build."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.charts import CHART

ROOT = CHART.parent.parent
DOCKERFILES = ("Dockerfile", "examples/image/Dockerfile")


@pytest.mark.parametrize("path", DOCKERFILES)
def test_hadolint_has_nothing_to_say(path: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")

    done = subprocess.run([hadolint, ROOT / path], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (0, "")


def test_the_image_has_another_user_than_root_and_hears_sigterm() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")

    final = text.rpartition("FROM ")[2]
    assert re.findall(r"^USER (\S+)", final, re.MULTILINE) == ["10001:10001"]
    assert "STOPSIGNAL SIGTERM" in final
    assert "ENTRYPOINT" not in final, "the chart's command is the process"
    assert "apt-get" not in text, "no compiler comes in"


def test_a_build_is_given_what_it_copies_and_little_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    wanted = {word for line in copied for word in line.split()}
    let_in = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert wanted <= let_in
    assert let_in - wanted == set()
