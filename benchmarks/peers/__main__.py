"""`python -m benchmarks.peers`: one effect, its process killed or frozen around it, by Tracklog, DBOS and Restate.

A process is stopped before the step, before or after the effect inside it, or after the step; another one goes on, as
a supervisor would have it; a frozen one then wakes. Effects are counted by a service outside of all of them. The peers
are installed into a folder of their own; one that cannot be is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from benchmarks import results, services
from benchmarks.peers.cases import STOPS, Case, Peer, cases, effects
from benchmarks.peers.dbos_peer import Dbos
from benchmarks.peers.installed import install_python, install_restate_server
from benchmarks.peers.postgres import postgres
from benchmarks.peers.restate_peer import restate
from benchmarks.peers.stopping import POINTS
from benchmarks.peers.tracklog_peer import Tracklog, call_of
from tests.support.ledger import ledger

COMMAND = "make bench-peers"
NAMES = ("tracklog", "dbos", "restate")
HEAD = [
    "| | the service has | stopped by | " + " | ".join(POINTS) + " |",
    "| --- | --- | --- |" + " --- |" * 4,
]
ABOUT = """\
Effects of one step whose process stops before the step, before or after the effect in it, or after the step; another
process goes on, and a frozen one then wakes. The service takes a key under which it does nothing twice, or can be asked
whether it was done (probe), or neither. DBOS: a workflow with a step; the next process has the same executor id, which
is the default. Restate: a handler with a `ctx.run`, one server, default settings; a frozen process has its address
taken. Tracklog: a session, opened again by the next process; `expired` is what its model is told. That is wrong where
the process was frozen for longer than its grace (3 s here) between its last look at the deadline and the send: only the
service can refuse that."""


def ran(peer: Peer, case: Case, folder: Path, ledger_url: str) -> str:
    """How many effects there are, and how it ended if that is not well."""
    own = folder / case.name
    own.mkdir()
    ended = peer.run(case, own, ledger_url)
    name = call_of(case) if isinstance(peer, Tracklog) else case.name
    made = effects(ledger_url, name)
    return f"{made}" if ended == "done" else f"{made}, {ended}"


def rows(peer: Peer) -> Iterator[str]:
    chosen = cases(peer.tools)
    with services.scratch() as folder, ledger() as (_, url), ThreadPoolExecutor(peer.at_once) as pool:
        seen = dict(zip(chosen, pool.map(lambda case: ran(peer, case, folder, url), chosen), strict=True))
    for tool in peer.tools:
        for stop in STOPS:
            found = " | ".join(seen[Case(tool, stop, point)] for point in POINTS)
            yield f"| {peer.title} | {tool} | {stop} | {found} |"


def peer_of(name: str, stack: ExitStack) -> Peer | str:
    """The peer, or why it is not there."""
    if name == "tracklog":
        return Tracklog(stack.enter_context(services.kafka()))
    if name == "dbos":
        return install_python("dbos") or Dbos(stack.enter_context(postgres()))
    why = install_python("restate-sdk", "hypercorn") or install_restate_server()
    return why or stack.enter_context(restate(stack.enter_context(services.scratch())))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--of", choices=NAMES, action="append", help="default: all")
    table = list(HEAD)
    for name in parser.parse_args().of or NAMES:
        with ExitStack() as stack:
            peer = peer_of(name, stack)
            lines = [f"| {name} | not installed: {peer} | | | | | |"] if isinstance(peer, str) else rows(peer)
            for line in lines:
                print(line, flush=True)
                table.append(line)
    results.keep(COMMAND, f"{ABOUT}\n\n" + "\n".join(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
