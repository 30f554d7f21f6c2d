"""What processes connect to, as the kernel has it, and what the rendered network policies let pods connect to."""

from __future__ import annotations

import ipaddress
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.support.charts import Object, of_kind

__all__ = ["Peer", "Sockets", "lets_reach"]

Peer = tuple[str, int]
"""Address and port of the other end."""
LOOK_S: Final = 0.05
LOOKED_S: Final = 5.0
CONNECTING: Final = ("01", "02")
LISTENING: Final = "0A"


class Sockets:
    """Looks all the time at what some processes are connected to, in TCP; `reached`: by process id."""

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self.reached: dict[int, set[Peer]] = {}
        self._pids = pids
        self._stop = threading.Event()
        self._looks = threading.Condition()
        self._count = 0

    @contextmanager
    def watched(self) -> Iterator[Sockets]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(LOOKED_S)

    def look(self) -> None:
        """Returns after everything that is open now was seen."""
        with self._looks:
            until = self._count + 2  # the look under way may have passed it already
            assert self._looks.wait_for(lambda: self._count >= until, LOOKED_S), "nobody looks"

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            table = dict(_table())
            for pid in self._pids():
                own = [table[inode] for inode in _inodes(pid) if inode in table]
                served = {port for state, port, _ in own if state == LISTENING}
                found = {peer for state, port, peer in own if state in CONNECTING and port not in served}
                self.reached.setdefault(pid, set()).update(found)
            with self._looks:
                self._count += 1
                self._looks.notify_all()


def _table() -> Iterator[tuple[str, tuple[str, int, Peer]]]:
    """Inode -> state, own port, other end."""
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
            _, own, other, state, *_, inode = line.split()[:10]
            yield inode, (state, int(own.rpartition(":")[2], 16), _peer(other))


def _peer(text: str) -> Peer:
    """Words of four bytes, each as this machine has it in memory."""
    address, _, port = text.rpartition(":")
    words = [bytes.fromhex(address[at : at + 8])[::-1] for at in range(0, len(address), 8)]
    found = ipaddress.ip_address(b"".join(words))
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped or found), int(port, 16)


def _inodes(pid: int) -> Iterator[str]:
    with suppress(OSError):  # it ended meanwhile
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    yield target.removeprefix("socket:[").removesuffix("]")


def lets_reach(objects: Sequence[Object], labels: Mapping[str, str], peer: Peer) -> bool:
    """Whether the policies of a release let a pod with these labels connect there; they add up."""
    selecting = [
        one["spec"]
        for one in of_kind(objects, "NetworkPolicy")
        if "Egress" in one["spec"]["policyTypes"]
        and one["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ]
    assert selecting, "nothing is said about this pod: it may go anywhere"
    return any(_rule_lets(rule, peer) for spec in selecting for rule in spec["egress"])


def _rule_lets(rule: Mapping[str, Any], peer: Peer) -> bool:
    address, port = peer
    if not any(one["port"] == port and one["protocol"] == "TCP" for one in rule["ports"]):
        return False
    blocks = [one["ipBlock"]["cidr"] for one in rule.get("to", ())]
    return not blocks or any(ipaddress.ip_address(address) in ipaddress.ip_network(block) for block in blocks)
