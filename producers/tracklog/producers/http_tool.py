"""Tools that are HTTP endpoints: each call is one POST of the arguments as JSON, on a connection of its own.

Idempotency-Key                     the call's one key, the same on every try (percent-encoded UTF-8)
Tracklog-Epoch, Tracklog-Attempt    numbers that only grow: a service may refuse one below the last it saw
Tracklog-Deadline                   microseconds since 1970 UTC: a service should refuse the call after it

what happens                                       what the call comes to
2xx                                                ok, the body
2xx whose body says that it failed (`failed`)      error: nothing was done
307, 308 (never followed), 4xx                     error: nothing was done
no connection                                      error: nothing was sent
5xx, 301 to 303, a connection lost after sending   unknown; of a readonly tool an error
409 to a later try of an idempotent tool           unknown: the first one may still be at work
no answer in time                                  timeout
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from tracklog.infra.clock import Clock, SystemClock
from tracklog.producers.tool_post import Answer, Endpoint
from tracklog.producers.tools import TIMEOUT_S, CallContext, ProbeAnswer, Probed, Tool, declared_effect
from tracklog.schemas.errors import ToolError, ToolOutcomeUnknown
from tracklog.schemas.values import Effect

__all__ = ["http_tool"]

ERROR_BODY_CHARS_MAX: Final = 1000
_CLOCK: Final = SystemClock()
_NOTHING_DONE: Final = frozenset((307, 308, *range(400, 500)))
_CONFLICT: Final = 409
_FORBIDS: Final = frozenset((_CONFLICT, 412))
_NOT_FOUND: Final = 404
_KEY_AS_IT_IS: Final = "!#$&'()*+,/:;=?@[]~ "


Failed = str | Callable[[Any], str]


def http_tool(
    name: str,
    url: str,
    schema: Mapping[str, Any],
    *,
    description: str = "",
    effect: str = Effect.OPAQUE,
    timeout_s: float = TIMEOUT_S,
    key_ttl_s: float | None = None,
    probe_url: str | None = None,
    precondition_url: str | None = None,
    failed: Failed | None = None,
    headers: Mapping[str, str] | None = None,
    nothing_done: Collection[int] = (),
    tls: ssl.SSLContext | None = None,
    clock: Clock = _CLOCK,
) -> Tool:
    """The endpoint at `url` as a tool. `schema` is the JSON schema of its arguments.

    `probe_url` is sent the same request when nobody knows whether the call happened: 2xx says that it did, with its
    output; 404 that it did not. `precondition_url` is sent it right before each send: 2xx lets the call go, 409 and 412
    do not, anything else is no answer. `failed` finds in a 2xx answer that nothing was done: the name of a field that
    then holds something ("error"), or a function from the JSON (or the text) to words, "" for a success.
    `nothing_done`: further statuses (503, say) by which the service surely says that it did nothing. `headers` are sent
    with every call, `tls` verifies the service; the deadline is checked by `clock`, last, in the thread that sends.
    Raises InvalidTool.
    """

    def endpoint(where: str) -> Endpoint:
        return Endpoint.of(name, where, headers or {}, timeout_s=timeout_s, tls=tls, clock=clock)

    service = _Service(
        effect=declared_effect(name, effect),
        nothing_done=_NOTHING_DONE.union(nothing_done),
        endpoint=endpoint(url),
        probe=None if probe_url is None else endpoint(probe_url),
        precondition=None if precondition_url is None else endpoint(precondition_url),
        failed=_field(failed) if isinstance(failed, str) else failed,
    )
    return Tool(
        name=name,
        description=description,
        schema=schema,
        call=service.call,
        effect=service.effect,
        timeout_s=timeout_s,
        key_ttl_s=key_ttl_s,
        probe=None if service.probe is None else service.ask,
        precondition=None if service.precondition is None else service.may_go,
        remote=True,
    )


@dataclass(frozen=True)
class _Service:
    """What the answers of an endpoint mean."""

    effect: Effect
    nothing_done: frozenset[int]
    endpoint: Endpoint
    probe: Endpoint | None
    precondition: Endpoint | None
    failed: Callable[[Any], str] | None

    async def call(self, context: CallContext, arguments: Mapping[str, Any]) -> str:
        try:
            answer = await self.endpoint.post(_headers(context), _json(arguments), deadline_us=context.deadline_us)
        except ToolOutcomeUnknown as lost:
            raise self._unknown(lost.message) from lost
        if answer.ok:
            return self._done(answer)
        said = f"{self.endpoint.name} answered {_words(answer)}"
        raise ToolError(said) if self._did_nothing(answer.status, context) else self._unknown(said)

    def _done(self, answer: Answer) -> str:
        """The body of a 2xx answer. Raises ToolError when it says that nothing was done."""
        if self.failed is None:
            return answer.body
        try:
            why = self.failed(_read(answer.body))
        except Exception as error:
            raise self._unknown(f"what {self.endpoint.name} answered cannot be read: {error}") from error
        if why:
            raise ToolError(f"{self.endpoint.name} answered {answer.status} and says: {why[:ERROR_BODY_CHARS_MAX]}")
        return answer.body

    async def may_go(self, context: CallContext, arguments: Mapping[str, Any]) -> bool | str:
        assert self.precondition is not None
        answer = await self.precondition.post(_headers(context), _json(arguments), deadline_us=None)
        if answer.ok or answer.status in _FORBIDS:
            return answer.ok or answer.body[:ERROR_BODY_CHARS_MAX] or False
        raise ToolError(f"{self.precondition.name} answered {_words(answer)}")

    async def ask(self, context: CallContext, arguments: Mapping[str, Any]) -> Probed:
        assert self.probe is not None
        answer = await self.probe.post(_headers(context), _json(arguments), deadline_us=None)
        if answer.ok:
            return Probed(ProbeAnswer.HAPPENED, answer.body)
        found = ProbeAnswer.ABSENT if answer.status == _NOT_FOUND else ProbeAnswer.UNKNOWN
        return Probed(found, f"the probe answered {_words(answer)}")

    def _did_nothing(self, status: int, context: CallContext) -> bool:
        at_work = status == _CONFLICT and self.effect is Effect.IDEMPOTENT and context.attempt > 1
        return status in self.nothing_done and not at_work

    def _unknown(self, said: str) -> ToolError:
        """Reading has no outcome to be in doubt about."""
        return ToolError(said) if self.effect is Effect.READONLY else ToolOutcomeUnknown(said)


def _read(body: str) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body


def _field(name: str) -> Callable[[Any], str]:
    """What a field of a JSON object holds, in words; "" where there is none, or it is empty."""

    def failed(answer: Any) -> str:
        found = answer.get(name) if isinstance(answer, dict) else None
        return (found if isinstance(found, str) else json.dumps(found)) if found else ""

    return failed


def _headers(context: CallContext) -> dict[str, str]:
    return {
        "Idempotency-Key": quote(context.idempotency_key, safe=_KEY_AS_IT_IS),
        "Tracklog-Epoch": str(context.epoch),
        "Tracklog-Attempt": str(context.attempt),
        "Tracklog-Deadline": str(context.deadline_us),
    }


def _json(arguments: Mapping[str, Any]) -> bytes:
    """ASCII, so that a lone surrogate goes through as the escape it came as; integers of any size."""
    return json.dumps(arguments, separators=(",", ":")).encode()


def _words(answer: Answer) -> str:
    body = answer.body[:ERROR_BODY_CHARS_MAX]
    return f"{answer.status}: {body}" if body else str(answer.status)
