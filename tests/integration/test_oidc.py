"""Tokens of an OpenID provider, against a real server on loopback that shows its keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

from tests.support.loopback import Asked, Loopback, Reply, loopback
from tests.support.serving import serving
from tracklog.consumers.api.oidc import KeysUnavailable, Oidc, TokenRefused
from tracklog.consumers.api.oidc_keys import DISCOVERY
from tracklog.consumers.api.tokens import Principal, Role
from tracklog.infra.clock import Clock, ManualClock, SystemClock
from tracklog.infra.settings_http import OidcSettings

AUDIENCE: Final = "tracklog"
FIRST: Final = RSAKey.generate_key(2048, {"kid": "first"}, private=True)
SECOND: Final = ECKey.generate_key("P-256", {"kid": "second"}, private=True)
CLAIMS: Final = {"sub": "ada", "roles": ["approver", "staff"], "tenants": ["acme"]}


class Provider:
    """Shows `keys`; `away` makes it answer 503, `hold` not at all until it is set."""

    def __init__(self) -> None:
        self.keys: list[Mapping[str, Any]] = [FIRST.as_dict(private=False)]
        self.away = False
        self.hold: threading.Event | None = None
        self.at: Loopback
        self.time = ManualClock()
        self.clock: Clock = self.time

    def answer(self, asked: Asked) -> Reply:
        if self.away:
            return Reply(503)
        if asked.path == DISCOVERY:
            said: dict[str, Any] = {"issuer": self.at.url, "jwks_uri": f"{self.at.url}/keys"}
        else:
            said = {"keys": self.keys}
        return Reply(body=json.dumps(said).encode(), hold=self.hold)

    @property
    def asked(self) -> int:
        return sum(one.path == "/keys" for one in self.at.asked)

    def oidc(self, **others: Any) -> Oidc:
        return Oidc(OidcSettings(issuer=self.at.url, audience=AUDIENCE, **others), self.clock)

    def token(self, key: Key = FIRST, algorithm: str = "RS256", header: Any = (), **claims: Any) -> str:
        now_s = self.clock.now_us() // 1_000_000
        said = {**CLAIMS, "iss": self.at.url, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 300, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        head = {"alg": algorithm, "kid": key.kid, **dict(header)}
        return jwt.encode(head, said, key, algorithms=[algorithm])


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    with loopback(made.answer) as made.at:
        yield made


async def test_a_token_says_who_it_is_with_which_roles_for_which_tenants(provider: Provider) -> None:
    assert await provider.oidc().principal(provider.token()) == Principal(
        "ada", frozenset((Role.APPROVER,)), frozenset(("acme",)), frozenset(("staff",))
    )


async def test_claims_are_taken_from_where_the_settings_say(provider: Provider) -> None:
    oidc = provider.oidc(
        person_claim="email",
        roles_claim="realm.roles",
        roles={"ops": "operator"},
        tenants_claim="https://acme.example/org",
        all_tenants="everywhere",
    )
    told: dict[str, Any] = {
        "email": "ada@acme.example",
        "realm": {"roles": "ops viewer"},
        "https://acme.example/org": "everywhere",
    }
    found = await oidc.principal(provider.token(**told))
    assert found == Principal("ada@acme.example", frozenset((Role.OPERATOR,)), frozenset(("*",)), frozenset(("ops",)))
    assert found.approver.roles == {"operator", "ops"}


@pytest.mark.parametrize(
    ("changed", "reason", "known"),
    [
        ({"exp": 1_700_000_000 - 31}, "expired", False),
        ({"exp": None}, "exp", False),
        ({"nbf": 1_700_000_000 + 31}, "not yet valid", False),
        ({"aud": "another-service"}, "aud", False),
        ({"aud": None}, "aud", False),
        ({"iss": "https://elsewhere.example"}, "iss", False),
        ({"sub": None}, "no person", True),
        ({"sub": 7}, "sub", False),
        ({"roles": ["staff"]}, "no role", True),
        ({"tenants": None}, "no tenant", True),
        ({"tenants": ["*"]}, "no tenant", True),
    ],
)
async def test_a_token_that_is_not_for_here_and_now_is_refused(
    provider: Provider, changed: dict[str, Any], reason: str, known: bool
) -> None:
    with pytest.raises(TokenRefused, match=reason) as refused:
        await provider.oidc().principal(provider.token(**changed))
    assert refused.value.known is known


async def test_clocks_may_differ_by_the_leeway_and_no_more(provider: Provider) -> None:
    oidc, token = provider.oidc(leeway_s=30), provider.token()
    provider.time.advance(329)
    assert (await oidc.principal(token)).name == "ada"
    provider.time.advance(1)
    with pytest.raises(TokenRefused, match="expired"):
        await oidc.principal(token)


def forged(token: str, header: Mapping[str, Any], secret: bytes) -> str:
    """The token under another header, signed by HMAC with what is public."""
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    said = f"{head}.{token.split('.')[1]}"
    seal = base64.urlsafe_b64encode(hmac.digest(secret, said.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{said}.{seal}"


async def test_forged_tokens_are_refused(provider: Provider) -> None:
    oidc, good = provider.oidc(), provider.token()
    public = FIRST.as_pem(private=False)
    provider.keys.append({**OctKey.import_key(b"x" * 32).as_dict(), "kid": "shared"})
    strangers = RSAKey.generate_key(2048, {"kid": "first"}, private=True)
    head, body, seal = good.split(".")
    for token in (
        forged(good, {"alg": "HS256", "kid": "first"}, public),
        forged(good, {"alg": "HS256", "kid": "shared"}, b"x" * 32),
        forged(good, {"alg": "RS256", "kid": "shared"}, b"x" * 32),
        f"{forged(good, {'alg': 'none', 'kid': 'first'}, b'').rpartition('.')[0]}.",
        provider.token(strangers),
        provider.token(algorithm="RS512"),
        f"{head}.{body}x.{seal}",
        f"{head}..{seal}",
        "..",
        "a.b.c",
        "é.b.c",
    ):
        with pytest.raises(TokenRefused) as refused:
            await oidc.principal(token)
        assert not refused.value.known, token


async def test_a_rotated_key_is_fetched_once_and_the_old_one_is_gone(provider: Provider) -> None:
    oidc, old = provider.oidc(), provider.token()
    await oidc.principal(old)
    provider.keys[:] = [SECOND.as_dict(private=False)]
    provider.time.advance(30)
    new = provider.token(SECOND, "ES256")
    # when many come with the new key at once
    found = await asyncio.gather(*(oidc.principal(new) for _ in range(50)))
    # then the provider is asked once more, and its former key is taken no longer
    assert {one.name for one in found} == {"ada"}
    assert provider.asked == 2
    with pytest.raises(TokenRefused, match="does not show"):
        await oidc.principal(old)


async def test_made_up_keys_do_not_make_it_ask_again_and_again(provider: Provider) -> None:
    oidc = provider.oidc(keys_pause_s=30)
    for number in range(200):
        with pytest.raises(TokenRefused, match="does not show"):
            await oidc.principal(provider.token(header={"kid": f"made-up-{number}"}))
    assert provider.asked == 1


async def test_while_the_provider_is_away_its_keys_hold_for_a_time_and_then_nobody_is_let_in(
    provider: Provider,
) -> None:
    # given one that was away from the beginning
    oidc = provider.oidc(keys_age_s_max=3600)
    provider.away = True
    with pytest.raises(KeysUnavailable):
        await oidc.principal(provider.token())
    # when it comes back, it is asked after the pause
    provider.away = False
    with pytest.raises(KeysUnavailable):
        await oidc.principal(provider.token())
    provider.time.advance(30)
    await oidc.principal(provider.token())
    # and when it goes away again, known keys hold for as long as the settings say
    provider.away = True
    provider.time.advance(3599)
    await oidc.principal(provider.token())
    provider.time.advance(1)
    with pytest.raises(KeysUnavailable):
        await oidc.principal(provider.token())


async def test_a_provider_that_never_answers_is_waited_for_as_long_as_said(provider: Provider) -> None:
    provider.hold = threading.Event()
    with pytest.raises(KeysUnavailable):
        await provider.oidc(keys_wait_s=0.2).principal(provider.token())
    provider.hold.set()


async def test_a_configuration_of_another_issuer_is_not_believed(provider: Provider) -> None:
    settings = OidcSettings(issuer=f"{provider.at.url}/", audience=AUDIENCE)
    with pytest.raises(KeysUnavailable):
        await Oidc(settings, provider.clock).principal(provider.token(iss=f"{provider.at.url}/"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "https://login.example"},
        {"audience": "a"},
        {"roles": {"ops": "operator"}},
        {"issuer": "http://login.example", "audience": "a"},
        {"issuer": "https://login.example", "audience": "a", "algorithms": "HS256"},
        {"issuer": "https://login.example", "audience": "a", "algorithms": "none"},
        {"issuer": "https://login.example", "audience": "a", "algorithms": ""},
        {"issuer": "https://login.example", "audience": "a", "roles": {"ops": "root"}},
    ],
)
def test_settings_that_would_let_in_others_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        OidcSettings(**wrong)


def test_the_api_takes_them_beside_those_of_its_file(provider: Provider, redis_db: str, tmp_path: Path) -> None:
    provider.clock = SystemClock()
    with serving(redis_db, tmp_path) as api:
        api.fold()
        api.services.oidc = provider.oidc()

        def status(token: str) -> int:
            return api.ask("GET", "/approvals", bearer=token)[0]

        assert status(provider.token()) == 200
        assert api.ask("GET", "/approvals", who="viewer")[0] == 200
        assert status(provider.token(exp=1)) == 401
        assert status(provider.token(roles=[])) == 403
        assert api.ask("GET", "/approvals?tenant=default", bearer=provider.token())[0] == 403
        assert api.ask("PUT", "/trajectories/a/task", {"agent": "a", "task": "t"}, bearer=provider.token())[0] == 403
        provider.away = True
        api.services.oidc = provider.oidc()
        assert status(provider.token()) == 503
        assert api.ask("GET", "/approvals", who="viewer")[0] == 200
