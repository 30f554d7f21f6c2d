"""A small MCP server in a process of its own: `python -m tests.support.mcp_server stdio LOG` or `http LOG PORT`.

LOG has a line for each call that reached a tool, so that a test sees what happened whatever was answered.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer

HANG_S = 60.0


def server_of(log: Path) -> MCPServer:
    server = MCPServer("shop")

    def note(what: str, **more: Any) -> None:
        with log.open("a") as file:
            file.write(json.dumps({"what": what, **more}) + "\n")

    @server.tool()
    async def find(what: str) -> str:
        """Looks for something."""
        note("find", arguments=what)
        return f"found {what}"

    @server.tool(name="shop.book")
    async def book(what: str, request_id: str, ctx: Context[Any, Any]) -> str:
        """Books something."""
        meta = ctx.request_context.meta or {}
        note("book", arguments=what, key=request_id, meta={name: value for name, value in meta.items() if "/" in name})
        if what == "end":
            os._exit(3)
        if what == "hang":
            threading.Event().wait(HANG_S)  # a server that answers nobody
        if what == "fail":
            raise ValueError("sold out")
        return f"booked {what}"

    @server.tool(structured_output=False)
    async def show(what: str) -> list[Any]:
        """Shows something."""
        return ["a picture", Image(data=b"png", format="png")]

    @server.tool()
    async def change(ctx: Context[Any, Any]) -> str:
        """Changes the list of tools."""

        async def find(what: str, where: str) -> str:
            return f"found {what} {where}"

        server.remove_tool("find")
        server.add_tool(find)
        return f"changed by {os.environ.get('SHOP_TOKEN', 'nobody')}"

    return server


def main() -> None:
    way, log = sys.argv[1], Path(sys.argv[2])
    if way == "stdio":
        server_of(log).run("stdio")
    else:
        server_of(log).run("streamable-http", host="127.0.0.1", port=int(sys.argv[3]))


if __name__ == "__main__":
    main()
