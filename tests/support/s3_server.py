"""An S3 server for tests: moto's, one request at a time, with the faults of stores that are not well.

As a program it serves at `python -m tests.support.s3_server PORT [FAULT...]`. With `--failing` every second put fails
with 503, with `--slow` it takes its time; with `--unconditional` it overwrites where it was told not to. `--stranger`
knows nobody's credentials, `--read-only` lets nobody write.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tracklog.infra.stack.ports import free_ports
from tracklog.infra.stack.process import wait_until

START_S: Final = 30.0
STOP_S: Final = 10.0
SLOW_S: Final = 0.5
BUCKET: Final = "bucket"
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@contextmanager
def s3_server(*faults: str) -> Iterator[dict[str, str]]:
    """Options of `[cold]` and `[blobs]` for a server with one bucket, which ends with the block."""
    with s3_process(*faults) as (options, _):
        yield options


@contextmanager
def s3_process(*faults: str) -> Iterator[tuple[dict[str, str], subprocess.Popen[bytes]]]:
    """The same, with its process, to be frozen."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.s3_server", str(port), *faults], stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        assert wait_until(lambda: _made(f"{address}/{BUCKET}"), START_S), "moto did not start"
        options = {
            "endpoint": address,
            "region": "us-east-1",
            "access_key_id": "somebody",
            "secret_access_key": "hush-hush",
            "allow_http": "true",
        }
        yield options, process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _made(bucket: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(bucket, method="PUT"), timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def main() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--failing", action="store_true")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--unconditional", action="store_true")
    parser.add_argument("--stranger", action="store_true")
    parser.add_argument("--read-only", action="store_true")
    given = parser.parse_args()
    app: App = DomainDispatcherApplication(create_backend_app)
    if given.failing:
        app = _failing(app)
    if given.slow:
        app = _slow(app)
    if given.stranger:
        app = _refusing(app, "InvalidAccessKeyId", ("GET", "HEAD", "PUT", "POST", "DELETE"))
    if given.read_only:
        app = _refusing(app, "AccessDenied", ("PUT", "POST", "DELETE"))
    if given.unconditional:
        app = _unconditional(app)
    run_simple("127.0.0.1", given.port, app, threaded=False)


def _is_of_an_object(environ: dict[str, Any], *methods: str) -> bool:
    """Not of the bucket, which is made by a put too."""
    of_objects = environ["PATH_INFO"].count("/") > 1 or environ["REQUEST_METHOD"] == "GET"
    return of_objects and environ["REQUEST_METHOD"] in methods


def _slow(app: App) -> App:
    puts = itertools.count()

    def served(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if _is_of_an_object(environ, "PUT") and next(puts) % 2 == 0:
            threading.Event().wait(SLOW_S)
        return app(environ, start)

    return served


def _refusing(app: App, code: str, methods: tuple[str, ...]) -> App:
    said = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()

    def served(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not _is_of_an_object(environ, *methods):
            return app(environ, start)
        start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(said)))])
        return [said]

    return served


def _failing(app: App) -> App:
    puts = itertools.count()

    def served(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if _is_of_an_object(environ, "PUT") and next(puts) % 2 == 0:
            start("503 Slow Down", [("Content-Length", "0")])
            return [b""]
        return app(environ, start)

    return served


def _unconditional(app: App) -> App:
    def served(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return app(environ, start)

    return served


if __name__ == "__main__":
    main()
