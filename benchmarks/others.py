"""The same 400 turns kept by others, when they are installed: `pip install langgraph-checkpoint-sqlite dbos`.

LangGraph keeps its state after each node; DBOS what each step returned. Both on SQLite, as their documentation says.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from importlib.util import find_spec
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from benchmarks import services
from benchmarks.measure import Measure
from benchmarks.session_process import asking, bytes_of, result
from benchmarks.sessions import STORED_TURN_BYTES, STORED_TURNS

STEPS_MAX = 2 * STORED_TURNS + 10
PAYLOAD_BYTES = sum(bytes_of(turn, STORED_TURN_BYTES) for turn in range(STORED_TURNS))


class Messages(TypedDict):
    messages: Annotated[list[Any], add]


def result_of(turn: int) -> dict[str, Any]:
    return result(turn, STORED_TURN_BYTES)


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def langgraph(folder: Path) -> list[Measure]:
    graphs, saver = import_module("langgraph.graph"), import_module("langgraph.checkpoint.sqlite")

    def model(state: Messages) -> dict[str, Any]:
        return {"messages": [asking(len(state["messages"]) // 2)]}

    def tools(state: Messages) -> dict[str, Any]:
        return {"messages": [result_of(len(state["messages"]) // 2)]}

    def more(state: Messages) -> str:
        return str(graphs.END) if len(state["messages"]) >= 2 * STORED_TURNS else "model"

    graph = graphs.StateGraph(Messages)
    graph.add_node("model", model)
    graph.add_node("tools", tools)
    graph.add_edge(graphs.START, "model")
    graph.add_edge("model", "tools")
    graph.add_conditional_edges("tools", more)
    config = {"configurable": {"thread_id": "bench"}, "recursion_limit": STEPS_MAX}
    path = str(folder / "langgraph.db")
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        graph.compile(checkpointer=saver.SqliteSaver(connection)).invoke({"messages": []}, config, durability="sync")
    stored = size_of(folder)
    with closing(sqlite3.connect(path, check_same_thread=False)) as connection:
        begun = time.perf_counter()
        found = graph.compile(checkpointer=saver.SqliteSaver(connection)).get_state(config)
        resume_s = time.perf_counter() - begun
    if len(found.values["messages"]) != 2 * STORED_TURNS:
        raise RuntimeError("LangGraph has not kept the messages")
    return [
        Measure("LangGraph: bytes stored for a byte of messages", stored / PAYLOAD_BYTES, ""),
        Measure("LangGraph: reading the state of 400 turns", resume_s * 1000, "ms"),
    ]


def dbos(folder: Path) -> list[Measure]:
    made = import_module("dbos").DBOS
    made(config={"name": "bench", "system_database_url": f"sqlite:///{folder}/dbos.db", "log_level": "ERROR"})
    model, tools = made.step()(asking), made.step()(result_of)

    @made.workflow()  # type: ignore[untyped-decorator]
    def run() -> int:
        messages = []
        for turn in range(STORED_TURNS):
            messages += [model(turn), tools(turn)]
        return len(messages)

    made.launch()
    try:
        if run() != 2 * STORED_TURNS:
            raise RuntimeError("DBOS has not run all steps")
    finally:
        made.destroy()
    return [Measure("DBOS: bytes stored for a byte of messages", size_of(folder) / PAYLOAD_BYTES, "")]


OTHERS: tuple[tuple[str, Callable[[Path], list[Measure]]], ...] = (
    ("langgraph.checkpoint.sqlite", langgraph),
    ("dbos", dbos),
)


def measure_others() -> list[Measure]:
    """Of those that are installed."""
    found = []
    for module, measure in OTHERS:
        if find_spec(module.split(".")[0]) is None or find_spec(module) is None:
            continue
        with services.scratch() as folder:
            found += measure(folder)
    return found
