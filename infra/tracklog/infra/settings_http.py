"""The settings of what speaks HTTP: the API, whose tokens it believes, and where news of it is sent (DESIGN §9)."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from tracklog.infra.settings_base import Count, Positive, Section

__all__ = ["LOOPBACK", "ApiSettings", "IngestSettings", "OidcSettings", "Url", "WebhookSettings"]

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def listed(given: object) -> object:
    """The environment and flags have texts only: several are separated by commas."""
    return [one.strip() for one in given.split(",") if one.strip()] if isinstance(given, str) else given


def _secured(url: str) -> str:
    parts = urlsplit(url)
    if url and (parts.hostname is None or parts.scheme not in ("http", "https")):
        raise ValueError("an address is https://host/path; http://localhost:PORT/path on this machine")
    if parts.scheme == "http" and not _is_here(parts.hostname or ""):
        raise ValueError("plain http is for this machine only (localhost, 127.0.0.1, [::1]); use https")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address holds no password")
    return url


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


Url = Annotated[str, AfterValidator(_secured)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]


class ApiSettings(Section):
    """`tracklog serve`: the HTTP API."""

    host: str = "127.0.0.1"
    """The address it listens at. Anything but this machine needs `api.tokens_file` or `oidc.issuer`."""
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    """The port it listens at. TLS is for whatever stands in front of it."""
    tokens_file: str = ""
    """TOML file of who may do what: persons, roles, tenants and hashes of bearer tokens (`tracklog tokens` makes them).
    Read again when it changes. Default: empty; without `oidc.issuer` everybody on this machine may then do
    everything."""
    requests_per_s: Positive = 50.0
    """Requests a second of one person, and as many at once. Above it the answer is 429."""
    body_bytes_max: Count = 1024 * 1024
    """Bytes of one request. Default 1 MiB. Above it the answer is 413."""
    streams_max: Count = 200
    """Streams of server-sent events that one process has open."""


class OidcSettings(Section):
    """Bearer tokens that an OpenID provider has signed (JWT), beside those of `api.tokens_file`."""

    issuer: Url = ""
    """The provider, as its tokens name it in `iss`. Default: empty, tokens of no provider are taken."""
    audience: str = ""
    """What must be in the `aud` of a token: the name of this API at the provider. Needed with an issuer, since a
    token for another service must not open this one."""
    jwks_url: Url = ""
    """Where the provider's public keys are. Default: what `/.well-known/openid-configuration` of the issuer says."""
    algorithms: Annotated[tuple[Algorithm, ...], BeforeValidator(listed), Field(min_length=1)] = ("RS256", "ES256")
    """Signatures that are taken; only those with a public key exist here. In the environment: separated by commas."""
    leeway_s: Annotated[int, Field(ge=0, le=300)] = 30
    """Seconds by which the clocks of provider and server may differ when a token begins and ends."""
    keys_age_s_max: Positive = 3600.0
    """Seconds for which a key is trusted without the provider having shown it again. They are asked for again every
    quarter of it; when the provider has been away for the whole of it, its tokens are refused."""
    keys_pause_s: Positive = 30.0
    """Seconds between two requests for the keys, whatever key a token names. A key that was just added is known after
    so long at the latest."""
    keys_wait_s: Positive = 5.0
    """Seconds that the provider has to answer with its keys."""
    person_claim: str = "sub"
    """The claim that says who it is: decisions are recorded under it. Choose one that the provider never gives to
    somebody else."""
    roles_claim: str = "roles"
    """The claim that has the roles: a list, or words. Where no claim has that name, a dot goes into an object
    (`realm_access.roles`)."""
    roles: Mapping[str, Literal["viewer", "approver", "operator", "recorder"]] = Field(default_factory=dict)
    """Which word of that claim is which role: a table such as `tracklog-approvers = "approver"`. Default: empty, the
    words are `viewer`, `approver`, `operator` and `recorder` themselves. A token without any role is refused."""
    tenants_claim: str = "tenants"
    """The claim that has the tenants: a list, or one text. A token without any is refused."""
    all_tenants: str = ""
    """The text in that claim that means all tenants. Default: empty, none does; a `*` in it is ignored."""

    @model_validator(mode="after")
    def _for_us(self) -> Self:
        if self.issuer and not self.audience:
            raise ValueError("an issuer needs an audience: a token for another service must not open this one")
        given = sorted(self.model_fields_set - {"issuer"})
        if given and not self.issuer:
            raise ValueError(f"{', '.join(given)} without issuer: no token would be looked at, and nobody kept out")
        return self


class WebhookSettings(Section):
    """Where `tracklog route` tells of calls that wait for a person: signed messages after the Standard Webhooks
    specification."""

    urls: Annotated[tuple[Url, ...], BeforeValidator(listed)] = ()
    """Addresses that each message is sent to, and no others: redirects are not followed. They are shown by
    `tracklog doctor`, so they hold no secret. In the environment: separated by commas. Default: none."""
    secret_file: str = ""
    """File with the secrets that sign the messages, one a line (`whsec_` and base64). Needed with addresses. While a
    secret is changed it has the old and the new one. Read again when it changes."""
    answer_url: Url = ""
    """Where people reach the API: begins the link in a message. Default: empty, messages have no link."""
    timeout_s: Positive = 10.0
    """Seconds that an address has to take a message. After it the message is sent again, under the same id."""
    tries_max: Count = 30
    """How often one message is sent to an address that does not take it."""
    pause_s: Positive = 5.0
    """Seconds between the first two tries; doubled after each, up to ten minutes."""
    give_up_s: Positive = 14_400.0
    """Seconds after which a message that an address has not taken is given up: the log of the router says so, and the
    call goes on waiting."""

    @model_validator(mode="after")
    def _signed(self) -> Self:
        if self.urls and not self.secret_file:
            raise ValueError("addresses need a secret_file: nobody could tell a message from a forged one")
        return self


class IngestSettings(Section):
    """What clients in other languages record through `tracklog serve`."""

    lease_s: Annotated[int, Field(ge=1)] = 60
    """Seconds after the last event of a client in which no other client may go on with its trajectory, when it does
    not ask for another time itself."""
    lease_s_max: Annotated[int, Field(ge=1)] = 3600
    """The longest such time that a client may ask for: as long as its slowest call."""
    batch_events_max: Annotated[int, Field(ge=1)] = 1000
    """Events of one request; its bytes are bounded by `api.body_bytes_max`."""
    answer_s: Positive = 30.0
    """Seconds until a request is answered though the log has not decided: with 504, and the client sends it again."""
    trajectories_max: Count = 1000
    """Trajectories that one process keeps at hand, each for ten minutes after it was last asked for. One that is not at
    hand is read from the log again when it goes on."""
