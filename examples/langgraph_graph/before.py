"""A graph of LangGraph."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from openai import AsyncOpenAI

from examples import desk

Tools = Sequence[Callable[..., Awaitable[str]]]


async def find_flights(to: str) -> str:
    """Flights to a city."""
    return await desk.flights(to)


async def book(flight: str) -> str:
    """Books a seat on a flight."""
    return await desk.book(flight)


async def travel(client: AsyncOpenAI, tools: Tools, task: str) -> str:
    chat = ChatOpenAI(model="gpt-5-mini", root_async_client=client, async_client=client.chat.completions)
    model = chat.bind_tools(tools)

    async def think(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    done = await graph.compile().ainvoke({"messages": [("user", task)]})
    return str(done["messages"][-1].content)


async def main(task: str) -> str:
    return await travel(AsyncOpenAI(), (find_flights, book), task)


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1])))
