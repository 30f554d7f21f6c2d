"""Who calls: bearer tokens, of which only hashes are kept (DESIGN §9).

A tokens file is TOML, one table a token:

    [ada-laptop]
    person = "ada"                      # what decisions say
    hash = "sha256:..."                 # of the token: `tracklog tokens` makes both
    roles = ["approver"]                # viewer, approver, operator, recorder; all may look, too
    tenants = ["acme"]                  # or ["*"]
    groups = ["manager"]                # words of your own, which policies name: may_approve = ["role:manager"]

Tokens are 256 random bits, so a plain hash keeps them. The file is read again when it changes: a token that was taken
out is refused within RELOAD_S.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tracklog.infra.clock import Clock, Entropy
from tracklog.infra.lines import AUDIT
from tracklog.schemas.approvals import ALL_TENANTS, Approver
from tracklog.schemas.errors import SettingsError
from tracklog.schemas.values import Name

__all__ = ["Principal", "Role", "TokenFile", "hash_of", "new_token"]

logger: Final = logging.getLogger(AUDIT)
RELOAD_S: Final = 5.0
FILE_BYTES_MAX: Final = 4 * 1024 * 1024


class Role(StrEnum):
    """What somebody may do. Looking needs `viewer`, which the others have too."""

    VIEWER = "viewer"
    APPROVER = "approver"
    OPERATOR = "operator"
    RECORDER = "recorder"


_API_ROLES: Final = frozenset(role.value for role in Role)


class Principal(NamedTuple):
    """Who a request is from. `name` is recorded as the one who decided; policies ask for `groups`, too."""

    name: str
    roles: frozenset[Role]
    tenants: frozenset[str]
    groups: frozenset[str] = frozenset()

    def may(self, role: Role) -> bool:
        return role in self.roles or role is Role.VIEWER

    @property
    def approver(self) -> Approver:
        """As whom it decides."""
        return Approver(self.name, self.groups - _API_ROLES | {role.value for role in self.roles}, self.tenants)

    def sees(self, tenant: str) -> bool:
        return ALL_TENANTS in self.tenants or tenant in self.tenants


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    person: Name
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    roles: Annotated[frozenset[Role], Field(min_length=1)]
    tenants: Annotated[frozenset[Name], Field(min_length=1)]
    groups: frozenset[Name] = frozenset()


class TokenFile:
    """Raises SettingsError, naming the file and what is wrong in it, when it is made; later a file that cannot be read
    leaves everything as it was, and `problem` says so."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._looked_s = clock.monotonic_s()
        self._changed = 0
        self._known: Mapping[str, Principal] = {}
        self.problem = ""
        self._read()

    def principal(self, token: str) -> Principal | None:
        """Whose token this is, None for nobody's."""
        if self._clock.monotonic_s() - self._looked_s >= RELOAD_S:
            self.look()
        return self._known.get(hash_of(token))

    def look(self) -> None:
        """Reads the file again when it has changed."""
        self._looked_s = self._clock.monotonic_s()
        try:
            if self._path.stat().st_mtime_ns != self._changed:
                self._read()
            self.problem = ""
        except (OSError, SettingsError) as error:
            if not self.problem:
                logger.warning("tokens are as they were before: %s", error)
            self.problem = str(error)

    def _read(self) -> None:
        try:
            changed, size_bytes = self._path.stat().st_mtime_ns, self._path.stat().st_size
            if size_bytes > FILE_BYTES_MAX:
                raise SettingsError(f"{self._path} has {size_bytes} bytes", hint=f"at most {FILE_BYTES_MAX}")
            tables = tomllib.loads(self._path.read_text(encoding="utf-8"))
            entries = {name: _Entry.model_validate(table) for name, table in tables.items()}
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"the tokens file {self._path} cannot be read: {error}") from error
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise SettingsError(f"the tokens file {self._path} is wrong at {where!r}: {first['msg']}") from None
        self._known = {one.hash: Principal(one.person, one.roles, one.tenants, one.groups) for one in entries.values()}
        self._changed = changed


def new_token(entropy: Entropy) -> str:
    """A token that nobody has: 256 random bits."""
    return base64.urlsafe_b64encode(entropy.nonce() + entropy.nonce()).decode().rstrip("=")


def hash_of(token: str) -> str:
    return f"sha256:{hashlib.sha256(token.encode('utf-8', 'replace')).hexdigest()}"
