"""An SDK's client whose model calls go through a session: recorded once, answered from the record ever after.

It is the SDK's own client over a transport that is the session, so whatever is built on the SDK works with it, and
gets the SDK's own objects. One path is answered; every other request raises SessionMisused.
"""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from tracklog.schemas.errors import InputError, SessionMisused

try:
    import httpx2
except ImportError as error:
    raise ImportError("no SDK is here to be wrapped: pip install 'tracklog[openai,anthropic]'") from error

if TYPE_CHECKING:
    from tracklog.producers.session import Session

__all__ = ["Speaks", "through", "wrapped"]


class Speaks(Protocol):
    """What goes over the wire of one SDK."""

    @property
    def path(self) -> str: ...

    async def answer(self, body: dict[str, Any], headers: Mapping[str, str]) -> Mapping[str, Any]:
        """What the endpoint would send whole: the same each time."""

    def events(self, answer: Mapping[str, Any]) -> Iterator[bytes]:
        """The same as a stream."""


def wrapped(session: Session, client: Any, **options: Any) -> Any:
    """The client for use inside of the session. The one given asks live; it stays as it is.

    Options: `on_token` is given the text of live replies as it comes (a program that streams is given the reply when
    it is whole); `prices`, `retries`, `timeout_s`, `backoff_s` are those of OpenAIModel and AnthropicModel; the
    client's own retries are not used. Raises InputError for a client that cannot be wrapped.
    """
    sdk = {kind.__module__.partition(".")[0] for kind in type(client).__mro__}
    if "openai" in sdk:
        from tracklog.producers.wrapped_openai import wrapped_openai

        return wrapped_openai(session, client, **options)
    if "anthropic" in sdk:
        from tracklog.producers.wrapped_anthropic import wrapped_anthropic

        return wrapped_anthropic(session, client, **options)
    raise unfit(client)


def unfit(client: Any) -> InputError:
    """The error for a client that is none of those that are wrapped."""
    return InputError(
        f"a {type(client).__name__} cannot be wrapped",
        hint="give an openai.AsyncOpenAI or an anthropic.AsyncAnthropic: one that blocks would stop its own session",
    )


def through(client: Any, speaks: Speaks, **options: Any) -> Any:
    """The client, with what `speaks` in place of the network. `options` are the SDK's."""
    # What the SDK asks the system about itself, and keeps: of no effect on a run, so a replay lets it happen.
    contextvars.Context().run(client.platform_headers)
    http_client = httpx2.AsyncClient(transport=_Through(speaks), base_url=client.base_url)
    return client.with_options(http_client=http_client, max_retries=0, **options)


class _Through(httpx2.AsyncBaseTransport):
    """The session, as what a client sends its requests by."""

    def __init__(self, speaks: Speaks) -> None:
        self._speaks = speaks

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises as Session.exchange does."""
        if request.method != "POST" or not request.url.path.endswith(self._speaks.path):
            raise SessionMisused(
                f"{request.method} {request.url.path} of a wrapped client would not be recorded",
                hint=f"inside of a session only POST {self._speaks.path} is; read other things with session.step",
            )
        body = orjson.loads(await request.aread())
        if not isinstance(body.get("messages"), list):
            raise SessionMisused("a request without a list of messages", hint="give messages=[...]")
        streams = bool(body.get("stream"))
        answer = await self._speaks.answer(body, request.headers)
        if not streams:
            return httpx2.Response(200, json=answer)
        return httpx2.Response(
            200, headers={"content-type": "text/event-stream"}, content=_sent(self._speaks.events(answer))
        )


async def _sent(events: Iterator[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event
