"""Tools of an MCP server: each call is one `tools/call`, with the call's key, epoch, attempt and deadline in `_meta`.

The model is shown the tools as they were listed. Before each call the server is asked for its list again: a tool that
is gone, or takes other arguments now, is not called.

what happens                                                  what the call comes to
a result                                                      ok, its text
a result that says `isError`                                  error, its text: the tool says that it failed
no connection, no such tool, it refuses the arguments         error: nothing was called
another error, an answer that is none, a connection lost      unknown; of a readonly tool an error
no answer in time                                             timeout
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from tracklog.infra.clock import Clock, SystemClock
from tracklog.producers.tool_schema import check_schema
from tracklog.producers.tools import TIMEOUT_S, CallContext, Check, Precondition, Probe, Tool, declared_effect
from tracklog.schemas.errors import InputError, InvalidTool, ToolError, ToolExpired, ToolOutcomeUnknown
from tracklog.schemas.values import Effect

try:
    import mcp

    from tracklog.producers.mcp_server import McpServer
except ImportError as error:
    raise ImportError("the mcp package is missing: pip install 'tracklog[mcp]'") from error

__all__ = ["Declared", "McpServer", "mcp_tools", "read_listing", "write_listing"]

NAME_CHARS_MAX: Final = 64
_META: Final = "tracklog/"
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")
_CLOCK: Final = SystemClock()
_NOT_CALLED: Final = frozenset(
    (mcp.types.INVALID_PARAMS, mcp.types.METHOD_NOT_FOUND, mcp.types.INVALID_REQUEST, mcp.types.PARSE_ERROR)
)
"""Codes by which a server says that it did not take the request."""


@dataclass(frozen=True)
class Declared:
    """What is declared of one tool; its server's own hints about effects are not believed.

    `key_argument` names the argument by which the tool takes the idempotency key: it is given the call's one key, and
    the model is not told of it. A server may read it from `_meta` as well. `probe` says whether a call happened,
    `precondition` whether it may be made now.
    """

    effect: str = Effect.OPAQUE
    timeout_s: float | None = None
    key_ttl_s: float | None = None
    key_argument: str | None = None
    probe: Probe | None = field(default=None, repr=False)
    precondition: Precondition | None = field(default=None, repr=False)


def mcp_tools(
    server: McpServer,
    listing: Path | Iterable[Mapping[str, Any]],
    effects: Mapping[str, str | Declared] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    prefix: str = "",
    clock: Clock = _CLOCK,
) -> tuple[Tool, ...]:
    """The tools of a server. `listing` is what `server.tools()` gave, or a file of it (`write_listing`).

    `effects` declares by the server's name of a tool what calling it twice would mean; what it leaves out is opaque.
    `prefix` goes before the names that the model is told. Raises InvalidTool, InputError.
    """
    listed = read_listing(listing) if isinstance(listing, Path) else tuple(listing)
    declared = {
        name: one if isinstance(one, Declared) else Declared(declared_effect(name, one))
        for name, one in (effects or {}).items()
    }
    unknown = sorted(set(declared) - {str(one.get("name")) for one in listed})
    if unknown:
        names = ", ".join(sorted(str(one.get("name")) for one in listed)) or "none"
        raise InvalidTool(f"MCP server {server.name!r} lists no tool {unknown[0]!r}", hint=f"it lists: {names}")
    return tuple(
        _tool(_Remote(server, one, declared.get(str(one.get("name")), Declared()), timeout_s, clock), prefix)
        for one in listed
    )


def read_listing(path: Path) -> tuple[dict[str, Any], ...]:
    """The tools in a file. Raises InputError."""
    try:
        listed = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise InputError(
            f"{path} has no list of tools: {error}", hint="make it: write_listing(path, await server.tools())"
        ) from error
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "name" in one for one in listed):
        raise InputError(f"{path} is no list of tools", hint="make it: write_listing(path, await server.tools())")
    return tuple(listed)


def write_listing(path: Path, listing: Sequence[Mapping[str, Any]]) -> None:
    """Writes the tools to a file, the same bytes for the same tools."""
    ordered = sorted(listing, key=lambda one: str(one.get("name")))
    path.write_bytes(orjson.dumps(ordered, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n")


def _tool(remote: _Remote, prefix: str) -> Tool:
    name, declared = _NOT_IN_NAMES.sub("_", f"{prefix}{remote.name}")[:NAME_CHARS_MAX], remote.declared
    return Tool(
        name=name,
        description=str(remote.listed.get("description") or ""),
        schema=remote.schema,
        call=remote.call,
        effect=declared_effect(name, declared.effect),
        timeout_s=remote.timeout_s,
        key_ttl_s=declared.key_ttl_s,
        probe=declared.probe,
        precondition=declared.precondition,
        check=_left_to_the_server(name, remote.schema),
        remote=True,
    )


def _left_to_the_server(name: str, schema: Mapping[str, Any]) -> Check | None:
    """None when the schema can be checked here; the server checks its own in any case."""
    try:
        check_schema(name, schema)
    except InvalidTool:
        return lambda _: ""
    return None


class _Remote:
    """One tool of a server, as it was listed."""

    def __init__(
        self, server: McpServer, listed: Mapping[str, Any], declared: Declared, timeout_s: float, clock: Clock
    ) -> None:
        self.name: Final = str(listed.get("name"))
        self.listed: Final = listed
        self.declared: Final = declared
        self.timeout_s: Final = timeout_s if declared.timeout_s is None else declared.timeout_s
        self.schema: Final = _shown_schema(self.name, listed, declared.key_argument)
        self.server: Final = server
        self._clock = clock

    async def call(self, context: CallContext, arguments: Mapping[str, Any]) -> str:
        async with self.server.using(self.timeout_s / 2) as (client, listed):
            self._check_same(listed)
            if self._clock.now_us() >= context.deadline_us:
                raise ToolExpired("the call was not started: its deadline had passed")
            result = await self._called(client, context, arguments)
        text = text_of(result)
        if result.is_error:
            raise ToolError(text or "the tool says that it failed")
        return text

    async def _called(
        self, client: mcp.Client, context: CallContext, arguments: Mapping[str, Any]
    ) -> mcp.types.CallToolResult:
        key = self.declared.key_argument
        given = {**arguments, key: context.idempotency_key} if key is not None else dict(arguments)
        try:
            result = await client.session.call_tool(self.name, given, meta=_meta(context), allow_input_required=True)
        except mcp.MCPError as error:
            said = f"MCP server {self.server.name!r} answered {self.server.words(error)}"
            raise ToolError(said) if error.code in _NOT_CALLED else self._unknown(said) from None
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises: the request may have been sent
            raise self._unknown(f"MCP server {self.server.name!r}: {self.server.words(error)}") from None
        if not isinstance(result, mcp.types.CallToolResult):
            raise self._unknown(f"MCP server {self.server.name!r} asks for more than a model can give")
        return result

    def _check_same(self, listed: Sequence[Mapping[str, Any]]) -> None:
        now = next((one for one in listed if one.get("name") == self.name), None)
        if now is None or now.get("inputSchema") != self.listed.get("inputSchema"):
            what = "is gone" if now is None else "takes other arguments now"
            raise ToolError(f"tool {self.name!r} of MCP server {self.server.name!r} {what}; it was not called")

    def _unknown(self, said: str) -> ToolError:
        """Reading has no outcome to be in doubt about."""
        return ToolError(said) if self.declared.effect == Effect.READONLY else ToolOutcomeUnknown(said)


def text_of(result: mcp.types.CallToolResult) -> str:
    """What the model is given. What is no text is named by its kind, size and hash: a tool's output is text here."""
    parts = [_part(one.model_dump(mode="json", by_alias=True, exclude_none=True)) for one in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(parts)


def _part(block: Mapping[str, Any]) -> str:
    kind = str(block.get("type"))
    if kind == "text":
        return str(block.get("text", ""))
    inside = block.get("resource") if isinstance(block.get("resource"), Mapping) else block
    assert isinstance(inside, Mapping)
    if isinstance(inside.get("text"), str):
        return f"{inside.get('uri', '')}\n{inside['text']}"
    words = [kind, *(str(inside[name]) for name in ("name", "uri", "mimeType") if inside.get(name))]
    data = inside.get("data", inside.get("blob"))
    if isinstance(data, str):
        words += [
            f"{len(data)} characters of base64",
            f"sha256 {hashlib.sha256(data.encode()).hexdigest()}",
            "not shown",
        ]
    return f"[{', '.join(words)}]"


def _meta(context: CallContext) -> Any:
    return {
        f"{_META}idempotency-key": context.idempotency_key,
        f"{_META}epoch": context.epoch,
        f"{_META}attempt": context.attempt,
        f"{_META}deadline-us": context.deadline_us,
    }


def _shown_schema(name: str, listed: Mapping[str, Any], key_argument: str | None) -> dict[str, Any]:
    """The schema of the arguments without that of the key."""
    schema = dict(listed.get("inputSchema") or {"type": "object"})
    if key_argument is None:
        return schema
    properties = dict(schema.get("properties") or {})
    if properties.pop(key_argument, None) is None:
        raise InvalidTool(
            f"tool {name!r} takes no argument {key_argument!r}", hint=f"it takes: {', '.join(properties)}"
        )
    required = [one for one in schema.get("required") or () if one != key_argument]
    return {**schema, "properties": properties, "required": required}
