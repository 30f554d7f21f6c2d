"""Signed messages, as the Standard Webhooks specification has them (standardwebhooks.com).

webhook-id           the same for every try, and for every message about the same thing
webhook-timestamp    seconds since 1970 UTC at which this try was signed: a receiver refuses old ones
webhook-signature    `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, one for each secret
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
from pathlib import Path
from typing import Final

from tracklog.schemas.errors import SettingsError

__all__ = ["Secrets", "signed"]

logger: Final = logging.getLogger("tracklog.webhooks")
PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64
SECRETS_MAX: Final = 4
"""Old and new ones while they are changed: a receiver takes a message that one of them has signed."""
FILE_BYTES_MAX: Final = 4096


class Secrets:
    """Those in a file, one a line: `whsec_` and the base64 of 24 to 64 random bytes. Read again when it changes.

    Raises SettingsError when it is made, naming the file and the line and never what is in it; later a file that cannot
    be read leaves the secrets as they were, and `problem` says so.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = -1
        self._keys: tuple[bytes, ...] = ()
        self.problem = ""
        self._read()

    def keys(self) -> tuple[bytes, ...]:
        try:
            if self._path.stat().st_mtime_ns != self._changed:
                self._read()
            self.problem = ""
        except (OSError, SettingsError) as error:
            if not self.problem:
                logger.warning("webhooks are signed as before: %s", error)
            self.problem = str(error)
        return self._keys

    def _read(self) -> None:
        try:
            changed = self._path.stat().st_mtime_ns
            with self._path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise SettingsError(f"the secrets file {self._path} cannot be read: {error.strerror}") from error
        lines = data.decode("utf-8", "replace").split()
        if not lines or len(lines) > SECRETS_MAX or len(data) > FILE_BYTES_MAX:
            raise SettingsError(f"the secrets file {self._path} has {len(lines)} secrets", hint=f"1 to {SECRETS_MAX}")
        self._keys = tuple(self._key(number, line) for number, line in enumerate(lines, 1))
        self._changed = changed

    def _key(self, number: int, line: str) -> bytes:
        try:
            key = base64.b64decode(line.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
            raise SettingsError(
                f"secret {number} in {self._path} is none",
                hint=f"{PREFIX} and the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random bytes, such as "
                f"`printf {PREFIX}; openssl rand -base64 32`",
            )
        return key


def signed(message_id: str, timestamp_s: int, body: bytes, keys: tuple[bytes, ...]) -> dict[str, str]:
    """The headers of one try."""
    said = f"{message_id}.{timestamp_s}.".encode() + body
    seals = (base64.b64encode(hmac.digest(key, said, hashlib.sha256)).decode() for key in keys)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(f"v1,{seal}" for seal in seals),
    }
