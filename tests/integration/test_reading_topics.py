"""The commands of docs/reading-topics.md that Kafka's own tools run, as written there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import missing_service
from tests.support.chains import append_all, run_of
from tests.support.projecting import REPLICAS
from tracklog.infra.log.open import open_log
from tracklog.infra.settings_sections import Settings
from tracklog.infra.stack.java import find_java
from tracklog.infra.stack.kafka_server import JAVA_MAJOR_MIN

PAGE: Final = Path(__file__).parents[2] / "docs" / "reading-topics.md"
CLASSES: Final = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
}
COMMAND_S: Final = 60.0


def commands(language: str = "sh") -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def topic(kafka_bootstrap: str) -> str:
    """One of its own, with one run in it."""
    prefix = "reading-topics"
    settings = Settings.model_validate({"prefix": prefix, "topics": {"partitions": 1, **REPLICAS}})
    log = open_log(f"kafka://{kafka_bootstrap}")
    log.create(settings.topic_specs())
    append_all(log, settings.topic_names.events, run_of("trip-1", turns=2).records)
    log.close()
    return settings.topic_names.events


def ran(words: list[str]) -> str:
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def said(kafka_libs: Path, kafka_bootstrap: str, topic: str) -> Callable[[str], str]:
    """Runs a command on that topic."""

    def run(command: str) -> str:
        script, *options = shlex.split(command.replace("HOST:PORT", kafka_bootstrap).replace("tracklog.events", topic))
        if script not in CLASSES:
            return ran([script, *options])
        java = [str(find_java(JAVA_MAJOR_MIN)), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs}/*"]
        return ran([*java, CLASSES[script], *options])

    return run


def test_the_page_names_the_class_of_each_script() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {one.split()[0] for one in commands()} == set(CLASSES)
    assert [name for name in CLASSES.values() if name not in page] == []


@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command.split()[:1]))
def test_a_command_of_the_page_shows_what_it_says(said: Callable[[str], str], command: str) -> None:
    told = said(command)

    match command.split()[0]:
        case "kafka-topics.sh":
            assert "PartitionCount: 1" in told
            assert "message.timestamp.type=LogAppendTime" in told
        case "kafka-get-offsets.sh":
            assert told.strip().endswith(":0:0" if "earliest" in command else ":0:16")
        case "kafka-console-consumer.sh":
            found = re.findall(r"tl-type:(\w+),", told)
            assert len(found) == told.count("trip-1") == (1 if "--offset" in command else 16)
            if "--from-beginning" in command:
                assert found[:2] == ["OwnershipClaimed", "TaskStarted"]
                assert "Partition:0\tOffset:15" in told
        case _:
            assert "Error" not in told


@pytest.mark.parametrize(("command", "records"), list(zip(commands("bash"), (16, 1, 16, 0), strict=True)))
def test_kcat_shows_what_the_page_says(said: Callable[[str], str], command: str, records: int) -> None:
    if shutil.which("kcat") is None:
        missing_service("kcat is not on the PATH (Debian: apt-get install kcat)")
    told = said(command)

    assert told.count("tl-type=") == records
    if records:
        assert told.count("trip-1") == records
    else:
        assert "1 partitions" in told
