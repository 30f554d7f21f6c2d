"""Where the tokens of SASL/OAUTHBEARER come from: IAM of Amazon, or a function of people's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tracklog.infra.modules import failed, imported, is_module
from tracklog.schemas.errors import SettingsError

__all__ = ["Token", "TokenSource", "token_source"]

Token = tuple[str, float]
"""The token, and until when it is good, in seconds since 1970."""
TokenSource = Callable[[str], Token]
"""Called by the client before a token ends, with the option `sasl.oauthbearer.config`."""

MSK: Final = "msk"
_HINT: Final = "msk:REGION for Amazon MSK, or MODULE:FUNCTION that returns the token and its end in seconds since 1970"


def token_source(spec: str) -> TokenSource:
    """What `log.oauth_token` names. Raises SettingsError, InputError for a module that fails to import."""
    kind, separator, rest = spec.partition(":")
    if not separator or not rest or not is_module(kind):
        raise SettingsError(f"log.oauth_token {spec!r} names no source of tokens", hint=_HINT)
    return _of_msk(rest) if kind == MSK else _of_people(spec, kind, rest)


def _of_msk(region: str) -> TokenSource:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise SettingsError(
            "log.oauth_token msk needs a library that is not installed", hint="pip install 'tracklog[msk]'"
        ) from error

    def token(_: str) -> Token:
        made, expires_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return made, expires_ms / 1000

    return token


def _of_people(spec: str, module_name: str, name: str) -> TokenSource:
    found = getattr(imported(spec, module_name), name, None)
    if not callable(found):
        raise SettingsError(f"log.oauth_token {spec!r} names no function", hint=_HINT)

    def token(_: str) -> Token:
        try:
            made, expires_s = found()
        except Exception as error:  # people's own code; the client is told by whatever leaves here
            raise failed(spec, "fails", error) from error
        return str(made), float(expires_s)

    return token
