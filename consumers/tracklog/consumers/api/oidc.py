"""Tokens that an OpenID provider has signed: who a token is for, and whether it holds (DESIGN §9).

A token is believed when one of the provider's public keys has signed it, by an algorithm that the settings name, for
this audience, within its time. The keys are those that the provider shows; while it shows none, no token is believed.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import orjson
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, InvalidClaimError, JoseError, MissingClaimError
from joserfc.jwt import JWTClaimsRegistry
from pydantic import TypeAdapter, ValidationError

from tracklog.consumers.api.oidc_keys import Keys, KeysUnavailable
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.infra.clock import Clock
from tracklog.infra.settings_http import OidcSettings
from tracklog.schemas.approvals import ALL_TENANTS
from tracklog.schemas.values import Name

__all__ = ["KeysUnavailable", "Oidc", "TokenRefused", "is_signed"]

_US: Final = 1_000_000
_NAME: Final[TypeAdapter[str]] = TypeAdapter(Name)


class TokenRefused(Exception):
    """A token that is not believed (`known` False), or whose owner may do nothing here. The text may be shown."""

    def __init__(self, reason: str, *, known: bool = False) -> None:
        super().__init__(reason)
        self.known = known


class Head(NamedTuple):
    algorithm: str
    key_id: str


def is_signed(token: str) -> bool:
    """Whether this has the form of a signed token; those of the tokens file have no dots."""
    return token.count(".") == 2


class Oidc:
    """Of one provider. Its method is called from one event loop."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._keys = Keys(settings, clock)

    async def principal(self, token: str) -> Principal:
        """Whose token this is. Raises TokenRefused, and KeysUnavailable while nobody can say."""
        head = _head(token)
        if head.algorithm not in self._settings.algorithms:
            raise TokenRefused("the token is not signed by an algorithm that is taken here")
        key = await self._keys.of(head.key_id)
        if key is None:
            raise TokenRefused("the token is signed by a key that its provider does not show")
        try:
            claims = jwt.decode(token, key, algorithms=list(self._settings.algorithms)).claims
        except (JoseError, ValueError, TypeError):
            raise TokenRefused("the signature of the token does not hold") from None
        self._check(claims)
        return self._person(claims)

    def _check(self, claims: dict[str, Any]) -> None:
        wanted = JWTClaimsRegistry(
            now=math.floor(self._clock.now_us() / _US),
            leeway=self._settings.leeway_s,
            iss={"essential": True, "value": self._settings.issuer},
            aud={"essential": True, "value": self._settings.audience},
            exp={"essential": True},
        )
        try:
            wanted.validate(claims)
        except ExpiredTokenError:
            raise TokenRefused("the token has expired") from None
        except MissingClaimError as error:
            raise TokenRefused(f"the token lacks {error.description}") from None
        except InvalidClaimError as error:
            raise TokenRefused(f"the token is not for here and now: {error.description}") from None

    def _person(self, claims: Mapping[str, Any]) -> Principal:
        asked = self._settings
        try:
            person = _NAME.validate_python(_at(claims, asked.person_claim), strict=True)
        except ValidationError:
            raise TokenRefused(f"the token has no person in {asked.person_claim!r}", known=True) from None
        named = asked.roles or {role.value: role.value for role in Role}
        words = _words(_at(claims, asked.roles_claim))
        roles = frozenset(Role(named[word]) for word in words if word in named)
        if not roles:
            raise TokenRefused(f"the token has no role of this API in {asked.roles_claim!r}", known=True)
        return Principal(person, roles, self._tenants(claims), frozenset(words) - set(Role))

    def _tenants(self, claims: Mapping[str, Any]) -> frozenset[str]:
        found = _at(claims, self._settings.tenants_claim)
        texts = {found} if isinstance(found, str) else set(_texts(found))
        if self._settings.all_tenants and self._settings.all_tenants in texts:
            return frozenset((ALL_TENANTS,))
        tenants = frozenset(texts - {ALL_TENANTS, ""})
        if not tenants:
            raise TokenRefused(f"the token has no tenant in {self._settings.tenants_claim!r}", known=True)
        return tenants


def _head(token: str) -> Head:
    """What a token says about how it is signed; nothing of it is believed yet."""
    first = token.partition(".")[0]
    try:
        said = orjson.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    except (ValueError, binascii.Error):
        raise TokenRefused("the token is no signed token") from None
    algorithm, key_id = (said.get(name) if isinstance(said, dict) else None for name in ("alg", "kid"))
    if not isinstance(algorithm, str) or not isinstance(key_id, str) or not key_id:
        raise TokenRefused("the token does not name its algorithm and its key")
    return Head(algorithm, key_id)


def _at(claims: Mapping[str, Any], name: str) -> object:
    """The claim of this name, else the one that its dots lead to."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(claim: object) -> list[str]:
    return claim.split() if isinstance(claim, str) else _texts(claim)


def _texts(claim: object) -> list[str]:
    return [one for one in claim if isinstance(one, str)] if isinstance(claim, list) else []
