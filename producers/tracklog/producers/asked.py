"""What a request of a wrapped client says beside its messages: model, tools, sampling. Kept in `ext` of its context.

The program decides these, not the setup; asked again with others, a recorded context is drift, as with a setup's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

__all__ = ["EXT_ASKED", "EXT_TOOLS", "Asked", "asked_tools"]

EXT_ASKED: Final = "asked"
"""Model and sampling, as JSON."""
EXT_TOOLS: Final = "asked_tools"
"""The hash under which the definitions of the tools are stored; empty for none."""
VALUE_BYTES_MAX: Final = 1024
"""Of one sampling parameter; of a longer one its hash is kept."""


class Asked(NamedTuple):
    """`tools_json`: the definitions as they are stored, None for none."""

    model: str
    sampling: Mapping[str, Any]
    tools_json: str | None

    @staticmethod
    def of(model: object, tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any]) -> Asked:
        text = orjson.dumps(tools, option=orjson.OPT_SORT_KEYS).decode() if tools else None
        return Asked(str(model or ""), {name: _kept(value) for name, value in sampling.items()}, text)

    @property
    def tools(self) -> bytes | None:
        """The hash of the definitions."""
        return None if self.tools_json is None else hashlib.sha256(self.tools_json.encode()).digest()

    @property
    def ext(self) -> dict[str, str]:
        said = {"model": self.model, "sampling": self.sampling}
        tools = "" if self.tools is None else self.tools.hex()
        return {EXT_ASKED: orjson.dumps(said, option=orjson.OPT_SORT_KEYS).decode(), EXT_TOOLS: tools}

    def changes(self, recorded: Mapping[str, str]) -> tuple[str, ...]:
        """The names of what differs from a recorded context's `ext`; nothing where it says nothing."""
        if EXT_ASKED not in recorded:
            return ()
        was = orjson.loads(recorded[EXT_ASKED])
        pairs = {
            "model": (was.get("model"), self.model),
            "sampling": (was.get("sampling"), orjson.loads(orjson.dumps(self.sampling))),
            "tools": (recorded.get(EXT_TOOLS), self.ext[EXT_TOOLS]),
        }
        return tuple(name for name, (before, now) in pairs.items() if before != now)


def asked_tools(recorded: Mapping[str, str], otherwise: bytes | None) -> bytes | None:
    """The hash of the tools of a recorded context, `otherwise` where its `ext` does not say."""
    return otherwise if EXT_TOOLS not in recorded else bytes.fromhex(recorded[EXT_TOOLS]) or None


def _kept(value: Any) -> Any:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    if len(data) <= VALUE_BYTES_MAX:
        return value
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
