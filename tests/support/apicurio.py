"""The Apicurio schema registry: a real one that speaks the Confluent API and refuses incompatible schemas."""

from __future__ import annotations

import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from tracklog.infra.stack.file_lock import file_lock
from tracklog.infra.stack.java import find_java
from tracklog.infra.stack.maven import FETCH_TIMEOUT_S, run_maven
from tracklog.infra.stack.ports import LOOPBACK, free_ports
from tracklog.infra.stack.process import ServerProcess, wait_until
from tracklog.schemas.errors import StackError

VERSION = "3.3.3"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
JAVA_MAJOR_MIN = 21
START_TIMEOUT_S = 100.0


def apicurio_path(cache: Path) -> Path:
    return cache / f"apicurio-{VERSION}"


def fetch_apicurio(cache: Path) -> Path:
    """The unpacked registry; fetched when it is not there yet (160 MB)."""
    home = apicurio_path(cache)
    with file_lock(cache / ".lock", timeout_s=FETCH_TIMEOUT_S):
        if not home.is_dir():
            partial = cache / ".partial"
            shutil.rmtree(partial, ignore_errors=True)
            run_maven(COPY, f"-Dartifact={ARTIFACT}", f"-DoutputDirectory={partial.absolute()}")
            [archive] = partial.glob("*.tar.gz")
            with tarfile.open(archive) as tar:
                tar.extractall(partial, filter="data")
            archive.unlink()
            partial.rename(home)
    return home


class Apicurio:
    """One registry in memory, on free loopback ports; ends with the test run."""

    def __init__(self, home: Path, program: Path) -> None:
        self._process = ServerProcess("apicurio", home)
        self._program = program
        self._port, self._management = free_ports(2)
        self.url = f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"

    def start(self) -> str:
        java = find_java(JAVA_MAJOR_MIN)
        listen = [f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self._port}"]
        manage = [f"-Dquarkus.management.host={LOOPBACK}", f"-Dquarkus.management.port={self._management}"]
        jar = ["-jar", str(self._program / "quarkus-run.jar")]
        self._process.spawn(
            [str(java), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *listen, *manage, *jar],
            lifetime="parent",
        )
        if not wait_until(lambda: self._answers() or not self._process.running, START_TIMEOUT_S):
            raise StackError(f"Apicurio did not answer within {START_TIMEOUT_S:.0f} s:\n{self._process.log_tail()}")
        if not self._process.running:
            raise StackError(f"Apicurio ended while starting:\n{self._process.log_tail()}")
        return self.url

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        self._process.kill()
