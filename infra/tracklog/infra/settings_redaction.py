"""The settings of redaction: what is taken out, and where (docs/redaction.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from tracklog.infra.settings_base import Section
from tracklog.infra.settings_http import listed
from tracklog.schemas.redaction import Redaction, check_field, check_pattern

__all__ = ["RedactionSettings"]

FIELDS_MAX: Final = 200


class RedactionSettings(Section):
    """What is taken out of what people, models and tools say. All processes of an installation need the same."""

    append: bool = False
    """Whether it is taken out before anything is recorded. Agent and model then see the same redacted text as the
    record has, and a call whose arguments hold a secret is refused. Default: off, all is recorded as it is said."""
    export: Literal["nothing", "readable", "everything"] = "nothing"
    """What is taken out of rows of the cold tier: `readable` of the JSON in `body`, while `payload` stays as it is, so
    that everything verifies and replays; `everything` also leaves `payload` empty where something was taken out. Such
    rows do not verify by their hash, cannot be replayed, and what they hold is never trimmed from the log."""
    secrets: bool = True
    """Whether known forms of keys, tokens, passwords in addresses and private keys are looked for."""
    fields: Annotated[
        tuple[Annotated[str, AfterValidator(check_field)], ...], BeforeValidator(listed), Field(max_length=FIELDS_MAX)
    ] = ()
    """Names of fields whose values go, wherever they are in what is said as JSON: `email`, or `customer.email` for one
    right inside of a customer. Labels have names too. Default: none."""
    patterns: Annotated[Mapping[str, str], Field(max_length=FIELDS_MAX)] = Field(default_factory=dict)
    """Forms of one's own: what it is -> a regular expression (Python's `re`), looked for in every text. One that can
    take exponential time makes writing as slow. Default: none."""

    @field_validator("patterns")
    @classmethod
    def _usable(cls, patterns: Mapping[str, str]) -> Mapping[str, str]:
        for what, pattern in patterns.items():
            check_pattern(what, pattern)
        return patterns

    def before_append(self) -> Redaction | None:
        """None where nothing is taken out."""
        return self.policy() if self.append else None

    def before_export(self) -> Redaction | None:
        """None where rows are exported as they were recorded."""
        return None if self.export == "nothing" else self.policy()

    def policy(self) -> Redaction:
        """One of its own for whoever counts what it took out."""
        return Redaction(self.fields, secrets=self.secrets, patterns=self.compiled)

    @property
    def compiled(self) -> dict[str, re.Pattern[str]]:
        return {what: check_pattern(what, pattern) for what, pattern in self.patterns.items()}
