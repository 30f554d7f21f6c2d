"""The files that images are made of: clean to hadolint, nothing of this machine goes into a build."""

from __future__ import annotations

import json
import os
import re
import shutil
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


def test_what_the_image_leaves_out_is_not_imported() -> None:
    (line,) = re.findall(
        r"pip .* uninstall -y (.+) \\$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
    )
    left_out = line.split()
    blocked = f"import sys; sys.modules.update(dict.fromkeys({left_out!r}))"
    used = "from tracklog.schemas.condition import Condition; Condition('a == 1', {'a': 1}, 'here')"

    done = subprocess.run([sys.executable, "-c", f"{blocked}; {used}"], capture_output=True, text=True, check=False)

    assert left_out == ["prompt_toolkit", "wcwidth"]
    assert (done.returncode, done.stderr) == (0, "")


BUILD_S = 540
TESTED = "localhost/tracklog:tested"
OWN_MB_MAX = 122
"""Of what stands on the base: with one of 128 MB the image is under 250 MB."""


@pytest.mark.faults
@pytest.mark.timeout(BUILD_S + 60)
def test_the_image_is_built_small_and_every_role_in_it_begins(tmp_path: Path) -> None:
    # given buildah and a base with python3, as `make image` wants it
    base = os.environ.get("TRACKLOG_TEST_IMAGE_BASE")
    if shutil.which("buildah") is None or base is None:
        pytest.skip("needs buildah, and a base in its storage that TRACKLOG_TEST_IMAGE_BASE names: make test-image")
    flags = os.environ.get("TRACKLOG_BUILDAH_FLAGS", "").split()
    environ = {**os.environ, "STORAGE_DRIVER": os.environ.get("STORAGE_DRIVER", "vfs")}

    def buildah(*words: str) -> str:
        done = subprocess.run(
            ["buildah", *flags, *words], env=environ, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # when it is built
    subprocess.run([ROOT / "scripts" / "image.sh", base, "tested"], check=True, timeout=BUILD_S, env=environ)
    # then it is small, and what is in it can be run by the user that it has
    made = json.loads(buildah("inspect", "--type", "image", TESTED))
    sizes = {name: buildah("images", "--format", "{{.Size}}", name).split() for name in (base, TESTED)}
    assert {unit for _, unit in sizes.values()} == {"MB"}
    assert float(sizes[TESTED][0]) - float(sizes[base][0]) <= OWN_MB_MAX, sizes
    assert made["OCIv1"]["config"]["User"] == "10001:10001"
    container = buildah("from", "--pull=never", "localhost/tracklog-example:tested").strip()
    try:
        for role in ("worker", "dispatch", "process", "route", "serve", "topics", "schemas", "selftest"):
            assert "Usage" in buildah("run", "--isolation", "chroot", container, "--", "tracklog", role, "--help")
        agents = "import shop_agent.agents, shop_agent.processor"
        buildah("run", "--isolation", "chroot", container, "--", "python", "-c", agents)
    finally:
        buildah("rm", container)
