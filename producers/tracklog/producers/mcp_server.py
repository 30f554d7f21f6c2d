"""An MCP server, through the official SDK (`pip install 'tracklog[mcp]'`): where it is, and one connection to it.

Nothing is connected until something is asked of it, so a replay never is. The SDK's scopes are left by the task that
entered them: each connection is held by a task of its own, until `aclose`, or the end of the event loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Final

from tracklog.schemas.errors import InputError, ToolError

try:
    import httpx2
    import mcp
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
except ImportError as error:
    raise ImportError("the mcp package is missing: pip install 'tracklog[mcp]'") from error

__all__ = ["CONNECT_TIMEOUT_S", "McpServer"]

CONNECT_TIMEOUT_S: Final = 10.0
"""For starting a server, or reaching it, and for its list of tools: nothing is called before."""
CLOSE_TIMEOUT_S: Final = 15.0
"""The SDK lets a server that it started end by itself, then ends it; each of its waits has a bound."""
PAGES_MAX: Final = 1000
"""Of one list of tools."""
SECRET_CHARS_MIN: Final = 4
"""Shorter values are found in any text."""

Connect = Callable[[AsyncExitStack], Awaitable[Any]]
"""Enters a transport."""


class McpServer:
    """`stdio` and `http` make one. Messages call it by its name: its address, environment and headers are not told."""

    def __init__(self, name: str, connect: Connect, secrets: tuple[str, ...], connect_timeout_s: float) -> None:
        if not connect_timeout_s > 0:
            raise InputError(f"MCP server {name!r} has a connect_timeout_s of {connect_timeout_s}", hint="above 0")
        self.name: Final = name
        self.connect_timeout_s: Final = connect_timeout_s
        self._connect = connect
        self._secrets = tuple(one for one in secrets if len(one) >= SECRET_CHARS_MIN)
        self._line: _Line | None = None
        self._leaving: set[_Line] = set()

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> McpServer:
        """A program that is started, and spoken to by its pipes. It is given PATH, HOME and the like, and `env`."""
        parameters = mcp.StdioServerParameters(command=command, args=list(args), env=dict(env or {}), cwd=cwd)

        async def connect(stack: AsyncExitStack) -> Any:
            return stdio_client(parameters)

        return cls(name, connect, tuple((env or {}).values()), connect_timeout_s)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        read_timeout_s: float = 300.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> McpServer:
        """One that is reached by streamable HTTP. `headers` go with every request."""
        timeout = httpx2.Timeout(connect_timeout_s, read=read_timeout_s)

        async def connect(stack: AsyncExitStack) -> Any:
            client = httpx2.AsyncClient(headers=dict(headers or {}), timeout=timeout)
            return streamable_http_client(url, http_client=await stack.enter_async_context(client))

        return cls(name, connect, (url, *(headers or {}).values()), connect_timeout_s)

    async def tools(self) -> tuple[dict[str, Any], ...]:
        """The tools as the server lists them now: name, description, inputSchema. Raises ToolError."""
        async with self.using() as (_, listed):
            return listed

    @asynccontextmanager
    async def using(self, within_s: float = math.inf) -> AsyncIterator[tuple[mcp.Client, tuple[dict[str, Any], ...]]]:
        """A connection that works, and the tools that are there. Raises ToolError: nothing was called.

        One that was lost since it was last used is opened anew.
        """
        line, listed = await self._ready(min(within_s, self.connect_timeout_s))
        line.users += 1
        try:
            yield await line.client(), listed
        finally:
            line.users -= 1

    def words(self, error: BaseException) -> str:
        """An error in words, without what is nobody's to read."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    async def aclose(self) -> None:
        """Ends the connection; a program that was started ends too. The server can be used again afterwards."""
        if self._line is not None:
            self._leave(self._line)
        here = [line for line in self._leaving if line.is_here]
        if here:
            await asyncio.wait({line.task for line in here}, timeout=CLOSE_TIMEOUT_S)

    async def __aenter__(self) -> McpServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _ready(self, within_s: float) -> tuple[_Line, tuple[dict[str, Any], ...]]:
        line: _Line | None = None
        try:
            async with asyncio.timeout(within_s) as bound:
                line, is_new = self._current()
                try:
                    return line, await self._listed(line)
                except Exception:
                    if is_new:
                        raise
                self._leave(line)
                line, _ = self._current()
                return line, await self._listed(line)
        except TimeoutError as late:
            if line is not None and not line.users:  # one that is at work may just be busy
                self._leave(line)
            if not bound.expired():
                raise self._gone(late) from late
            raise ToolError(f"MCP server {self.name!r} was not ready within {within_s:g} s") from None
        except Exception as error:  # noqa: BLE001 - whatever connecting raises: nothing was called
            if line is not None:
                self._leave(line)
            raise self._gone(error) from None

    def _current(self) -> tuple[_Line, bool]:
        """(the connection, whether it is a new one)."""
        line = self._line
        if line is not None and line.is_here and not line.task.done():
            return line, False
        self._line = _Line(self._connect)
        return self._line, True

    def _leave(self, line: _Line) -> None:
        if self._line is line:
            self._line = None
        if line.is_here:
            self._leaving.add(line)
            line.task.add_done_callback(lambda _: self._leaving.discard(line))
            line.leave()

    async def _listed(self, line: _Line) -> tuple[dict[str, Any], ...]:
        client = await line.client()
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await client.list_tools(cursor=cursor, cache_mode="refresh")
            found += [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return tuple(found)
        raise ToolError(f"MCP server {self.name!r} lists its tools without end")

    def _gone(self, error: Exception) -> ToolError:
        if isinstance(error, ToolError):
            return error
        return ToolError(f"MCP server {self.name!r} cannot be reached: {self.words(error)}")


class _Line:
    """One connection. It belongs to the event loop that it was opened in. `users`: how many calls are at work on it."""

    def __init__(self, connect: Connect) -> None:
        self.users = 0
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[mcp.Client] = self._loop.create_future()
        self._stop = asyncio.Event()
        self.task: Final = self._loop.create_task(self._hold(connect), context=contextvars.Context())

    @property
    def is_here(self) -> bool:
        """False in another event loop than the one that it was opened in, whose end has ended it."""
        return self._loop is asyncio.get_running_loop()

    async def client(self) -> mcp.Client:
        """Raises what connecting raised. Several may wait for it."""
        return await asyncio.shield(self._opened)

    def leave(self) -> None:
        """Has the connection end, in its own time."""
        if self._opened.done():
            self._stop.set()
        else:
            self.task.cancel()

    async def _hold(self, connect: Connect) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(mcp.Client(await connect(stack)))
                self._opened.set_result(client)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - whatever a transport raises is for who waits for it
            if not self._opened.done():
                self._opened.set_exception(error)
                self._opened.exception()  # read: nobody may wait any more
        finally:
            if not self._opened.done():
                self._opened.cancel()
