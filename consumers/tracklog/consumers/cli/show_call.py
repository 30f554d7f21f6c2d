"""`tracklog show ID --call CALL`: one call, from all topics."""

from __future__ import annotations

from typing import Any

from tracklog.consumers.call_story import CallStory, Chapter
from tracklog.consumers.cli.replay_output import clock_time
from tracklog.consumers.cli.run import Run
from tracklog.consumers.copying import appended_ms
from tracklog.consumers.event_json import event_map
from tracklog.consumers.summary import cut


def tell_call(run: Run, story: CallStory, *, wide: bool = False) -> None:
    if run.as_json:
        run.out.json(story_map(story))
        return
    run.out.text(f"call {story.call_id} of {story.trajectory_id}")
    width = None if wide or not run.out.console.is_terminal else run.out.console.width
    for chapter in story.chapters:
        line = _line(chapter)
        run.out.text(line if width is None else cut(line, width), style="yellow" if chapter.verdict else "")


def story_map(story: CallStory) -> dict[str, Any]:
    """For JSON; records as `show --json` has them, each with its topic."""
    return {
        "trajectory_id": story.trajectory_id,
        "call_id": story.call_id,
        "records": [
            {
                "topic": one.record.topic,
                "verdict": one.verdict or None,
                "text": one.text,
                **event_map(one.read, one.record),
            }
            for one in story.chapters
        ],
    }


def _line(chapter: Chapter) -> str:
    record, verdict = chapter.record, f"[{chapter.verdict}] " if chapter.verdict else ""
    topic = record.topic.rpartition(".")[2]
    place = f"{topic} {record.partition}:{record.offset}"
    seq = getattr(chapter.read.envelope, "seq", None)
    number = "" if seq is None else f"#{seq}"
    return f"{clock_time(appended_ms(record))}  {place:<16} {number:<5} {chapter.read.name:<17} {verdict}{chapter.text}"
