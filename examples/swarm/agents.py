"""A small swarm: a planner spawns a writer and a reviewer, which talk to each other until the text is agreed.

    tracklog worker examples.swarm.agents:planner examples.swarm.agents:writer examples.swarm.agents:reviewer
    tracklog route
    tracklog submit planner 'a haiku about logs' --id haiku
    tracklog result haiku --wait
    tracklog swarm haiku

The task "stuck" is the variant that never ends: writer and reviewer each wait for the other's first word.
`tracklog swarm haiku` names the two; `tracklog cancel haiku` ends all three.
"""

from __future__ import annotations

from typing import Any, Final

from tracklog.producers import Agent, Session

ROUNDS: Final = 2


async def plan(session: Session, task: str) -> Any:
    """Begins both, tells each of the other, and gives on what they agreed."""
    writer = await session.spawn("writer", task)
    reviewer = await session.spawn("reviewer", task)
    await session.send(writer, reviewer)
    await session.send(reviewer, writer)
    verdict = (await session.child_result(reviewer)).value
    text = (await session.child_result(writer)).value
    return {"text": text, "verdict": verdict}


async def write(session: Session, task: str) -> str:
    reviewer = str((await session.receive())["content"])
    text = f"draft 0 of {task}"
    for number in range(1, ROUNDS + 1):
        if task != "stuck":
            await session.send(reviewer, text)
        remark = (await session.receive(reviewer))["content"]
        text = f"draft {number} of {task} ({remark})"
    return text


async def review(session: Session, task: str) -> str:
    writer = str((await session.receive())["content"])
    for number in range(1, ROUNDS + 1):
        draft = str((await session.receive(writer))["content"])
        await session.send(writer, f"remark {number} on {len(draft)} characters")
    return f"agreed after {ROUNDS} rounds"


planner = Agent("planner", None, program=plan)
writer = Agent("writer", None, program=write)
reviewer = Agent("reviewer", None, program=review)
