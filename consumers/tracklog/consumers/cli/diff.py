"""`tracklog diff`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer

from tracklog.consumers.cli.command import command, new_app
from tracklog.consumers.cli.run import Run
from tracklog.consumers.comparing import Comparison, TurnPair, compare
from tracklog.consumers.summary import one_line
from tracklog.consumers.turns import read_turns
from tracklog.consumers.wiring import blobs_of, check_topic, opened_log

SAID_CHARS_MAX: Final = 60

app = new_app()


@command(app)
def diff(
    run: Run,
    left: Annotated[str, typer.Argument(metavar="ID1", help="A trajectory.")],
    right: Annotated[str, typer.Argument(metavar="ID2", help="The one to compare it with.")],
) -> None:
    """Compare two trajectories: the first turn where they differ and how, then turn by turn.

    For a fork and its origin, two forks, or two runs of one task. Compared are versions, contexts, replies, arguments,
    rulings, outputs, readings, what was sent, and how each ended; the ids of calls, times and costs are not. Exit code
    0 when all of it is the same, 1 when something differs.

    \b
    Examples:
      tracklog diff airline-17-2 airline-17-3
      tracklog diff trip-1 trip-1.fork-3-77b1c2d0 --json
    """
    topic = run.settings.topic_names.events
    with opened_log(run.settings) as log:
        check_topic(log, run.settings)
        blobs = blobs_of(run.settings)
        found = compare(read_turns(log, topic, left, blobs), read_turns(log, topic, right, blobs))
    if run.as_json:
        run.out.json(comparison_map(found))
    else:
        tell(run, found)
    if not found.same:
        run.faulty()


def comparison_map(found: Comparison) -> dict[str, Any]:
    """For JSON."""
    first = found.first
    return {
        "left": found.left,
        "right": found.right,
        "same": found.same,
        "shared": None if found.shared is None else found.shared.model_dump(),
        "first": None if first is None else {"turn": first[0], "what": first[1], **first[2]._asdict()},
        "turns": [_pair_map(pair) for pair in found.turns],
        "ends": {**found.ends._asdict(), "differ": found.ends_differ},
        "events": found.events,
    }


def _pair_map(pair: TurnPair) -> dict[str, Any]:
    return {
        "turn": pair.turn,
        "same": pair.same,
        "shared": pair.shared,
        "differs": {name: sides._asdict() for name, sides in pair.differs.items()},
        **pair.said._asdict(),
    }


def tell(run: Run, found: Comparison) -> None:
    out, first = run.out, found.first
    if found.shared is not None:
        out.text(f"both begin with the events of {found.shared.trajectory_id} up to {found.shared.seq}")
    if first is None:
        out.text(f"{found.left} and {found.right} are the same", style="green")
    else:
        turn, what, sides = first
        where = "their ends" if turn is None else f"turn {turn}"
        out.text(f"{found.left} and {found.right} differ first at {where}: {what}", style="red")
        out.text(f"  left   {sides.left}")
        out.text(f"  right  {sides.right}")
    out.table(("turns", "differs in", "left", "right"), list(_rows(found.turns)), right=("turns",))
    out.text(f"left ended   {found.ends.left}")
    out.text(f"right ended  {found.ends.right}")
    if found.events is not None:
        out.text(f"event by event: {found.events or 'the same work'}", style="dim")


def _rows(pairs: Sequence[TurnPair]) -> Iterator[tuple[str, str, str, str]]:
    """Turns that are the same share a row."""
    begun = 0
    for n, pair in enumerate(pairs):
        following = pairs[n + 1] if n + 1 < len(pairs) else None
        if pair.same and following is not None and following.same and following.shared == pair.shared:
            continue
        turns = str(pair.turn) if begun == n else f"{pairs[begun].turn}-{pair.turn}"
        begun = n + 1
        if pair.same:
            yield turns, "shared" if pair.shared else "same", "", ""
        else:
            left, right = (one_line(words, SAID_CHARS_MAX) for words in pair.said)
            yield turns, ", ".join(pair.differs), left, right
