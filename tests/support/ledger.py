"""A small service whose effects are counted: POST /effect makes one, GET /effects/CALL says whether there is one.

In a thread (`ledger()`), or in a process of its own: `python -m tests.support.ledger` prints its address.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request, urlopen

TIMEOUT_S = 10


class Ledger:
    """`made` counts effects by call id; a key that was seen makes no second one."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.keys: dict[str, str] = {}
        self.lock = threading.Lock()
        self.moment: Callable[[str], None] = lambda _: None
        """Told when an effect is asked for, when it was made or its key was known, and when that was answered."""

    def make(self, call_id: str, key: str | None) -> str:
        self.moment(f"{call_id} is asked for")
        receipt, known = self._make(call_id, key)
        self.moment(f"the key of {call_id} is known: nothing is done" if known else f"{call_id} is done")
        return receipt

    def _make(self, call_id: str, key: str | None) -> tuple[str, bool]:
        """(receipt, whether the key was known)."""
        with self.lock:
            self.asked[call_id] += 1
            if key is not None and key in self.keys:
                return self.keys[key], True
            self.made[call_id] += 1
            receipt = f"receipt for {call_id}"
            if key is not None:
                self.keys[key] = receipt
            return receipt, False


class _Handler(BaseHTTPRequestHandler):
    ledger: Ledger

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        receipt = self.ledger.make(asked["call_id"], asked.get("key"))
        with suppress(ConnectionError):  # whoever asked may be killed by now
            self._answer({"receipt": receipt})
            self.ledger.moment(f"{asked['call_id']} is answered")

    def do_GET(self) -> None:
        if self.path == "/made":
            self._answer(dict(self.ledger.made))
        else:
            self._answer({"made": self.ledger.made[self.path.rpartition("/")[2]]})

    def _answer(self, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@contextmanager
def ledger() -> Iterator[tuple[Ledger, str]]:
    """(the ledger, its address)."""
    kept = Ledger()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"ledger": kept}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield kept, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def make_effect(url: str, call_id: str, key: str | None) -> str:
    data = json.dumps({"call_id": call_id, "key": key}).encode()
    with urlopen(Request(f"{url}/effect", data=data, method="POST"), timeout=TIMEOUT_S) as answer:
        return str(json.load(answer)["receipt"])


def effects_of(url: str, call_id: str) -> int:
    with urlopen(f"{url}/effects/{call_id}", timeout=TIMEOUT_S) as answer:
        return int(json.load(answer)["made"])


def all_effects(url: str) -> dict[str, int]:
    with urlopen(f"{url}/made", timeout=TIMEOUT_S) as answer:
        return dict(json.load(answer))


def main() -> None:
    with ledger() as (_, url):
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
