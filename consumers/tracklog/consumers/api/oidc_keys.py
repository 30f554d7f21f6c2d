"""The public keys of an OpenID provider: fetched, kept for a time, and fetched again when they change (RFC 7517).

key known, young      used
key known, older      used, and asked for again beside it
key not known         asked for, and waited for; at most once in `oidc.keys_pause_s`, whatever tokens name
too old, or none      KeysUnavailable: nobody is let in because the provider is away
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, OKPKey, RSAKey

from tracklog.infra.clock import Clock
from tracklog.infra.settings_http import LOOPBACK, OidcSettings
from tracklog.producers.tool_post import Endpoint
from tracklog.schemas.errors import InputError, ToolError

__all__ = ["Keys", "KeysUnavailable"]

logger: Final = logging.getLogger("tracklog.audit")
KEYS_MAX: Final = 100
"""Keys of one provider that are kept."""
KEYS_CHARS_MAX: Final = 1024 * 1024
"""Of the provider's answer."""
RSA_BITS_MIN: Final = 2048
DISCOVERY: Final = "/.well-known/openid-configuration"


class KeysUnavailable(Exception):
    """The provider does not show its keys. Nothing of why is told to whoever asks; the log has it."""


class Keys:
    """Of one provider; used on one event loop."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._known: Mapping[str, Key] = {}
        self._shown_s: float | None = None
        self._asked_s: float | None = None
        self._asking: asyncio.Task[None] | None = None

    async def of(self, key_id: str) -> Key | None:
        """The key of this id; None when the provider shows none. Raises KeysUnavailable."""
        found = self._known.get(key_id) if self._age_s() < self._settings.keys_age_s_max else None
        if found is not None:
            if self._age_s() >= self._settings.keys_age_s_max / 4:
                self._ask()
            return found
        self._ask()
        if self._asking is not None:
            await asyncio.shield(self._asking)
        if self._age_s() >= self._settings.keys_age_s_max:
            raise KeysUnavailable
        return self._known.get(key_id)

    def _age_s(self) -> float:
        return float("inf") if self._shown_s is None else self._clock.monotonic_s() - self._shown_s

    def _ask(self) -> None:
        """Begins to fetch, unless that is under way or was just done."""
        now_s = self._clock.monotonic_s()
        if self._asking is not None and not self._asking.done():
            return
        self._asking = None
        if self._asked_s is None or now_s - self._asked_s >= self._settings.keys_pause_s:
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._fetch())

    async def _fetch(self) -> None:
        began_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(self._settings.keys_wait_s):
                known = _keys(await self._json(await self._url()))
        except (InputError, ToolError, TimeoutError, ValueError) as error:
            logger.warning(
                "the keys of %s were not fetched: %s", self._settings.issuer, str(error) or "no answer in time"
            )
            return
        self._known, self._shown_s = known, began_s

    async def _url(self) -> str:
        """Raises ValueError for a provider that does not say who it is, or would have keys fetched in the clear."""
        if self._settings.jwks_url:
            return self._settings.jwks_url
        said = await self._json(self._settings.issuer.rstrip("/") + DISCOVERY)
        url = said.get("jwks_uri")
        if said.get("issuer") != self._settings.issuer or not isinstance(url, str):
            raise ValueError("its configuration names another issuer, or no keys")
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise ValueError(f"its keys are at {url!r}, not behind https")
        return url

    async def _json(self, url: str) -> Mapping[str, Any]:
        """What a GET gives; redirects are not followed. Raises InvalidTool, ToolError, TimeoutError, ValueError."""
        wait_s = self._settings.keys_wait_s
        answer = await Endpoint.of("the provider", url, {}, timeout_s=wait_s, tls=None, clock=self._clock).get()
        if not answer.ok or len(answer.body) > KEYS_CHARS_MAX:
            raise ValueError(f"{url} answered {answer.status} with {len(answer.body)} characters")
        said = orjson.loads(answer.body)
        if not isinstance(said, dict):
            raise ValueError(f"{url} answered no JSON object")
        return said


def _keys(said: Mapping[str, Any]) -> Mapping[str, Key]:
    """Those that can verify signatures, by id. Raises ValueError when there are none."""
    listed = said.get("keys")
    found = {}
    for one in listed[:KEYS_MAX] if isinstance(listed, list) else ():
        key = _key(one)
        if key is not None:
            found[str(one["kid"])] = key
    if not found:
        raise ValueError("it shows no key that verifies signatures")
    return found


def _key(said: object) -> Key | None:
    """None for what is no public key for signatures: another may still be."""
    if not isinstance(said, dict) or said.get("use", "sig") != "sig" or not isinstance(said.get("kid"), str):
        return None
    try:
        key = JWKRegistry.import_key(said)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    weak = isinstance(key, RSAKey) and key.public_key.key_size < RSA_BITS_MIN
    return key if isinstance(key, RSAKey | ECKey | OKPKey) and not key.is_private and not weak else None
