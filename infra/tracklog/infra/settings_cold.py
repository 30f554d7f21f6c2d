"""The settings of the cold tier: where the table is, and how its writers cut (DESIGN §7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from tracklog.infra.settings_base import HOME_DEFAULT, Count, Positive, Section

__all__ = ["COLD_SCHEMES", "ColdSettings", "RetentionSettings"]

COLD_SCHEMES: Final = ("file://", "s3://", "gs://")


class ColdSettings(Section):
    """The cold tier: a Delta Lake table of every event, and what writes it (`tracklog export`)."""

    url: str = f"{HOME_DEFAULT}/cold"
    """Where the tables lie: a directory (`PATH` or `file:///PATH`), `s3://BUCKET[/PREFIX]` or
    `gs://BUCKET[/PREFIX]`. Default: a directory under `home`. Credentials come from `cold.options` or from where
    the cloud's own tools find them."""
    options: Mapping[str, SecretStr] = Field(default_factory=dict)
    """Options of the object store by the names that `blobs.options` has too, e.g. `region`, `endpoint`,
    `access_key_id`, `secret_access_key`, `allow_http`. Default: none. Unused by a directory."""
    timeout_s: Positive = 60.0
    """Seconds one request to an object store may take, its retries included. Unused by a directory. Cannot be
    switched off."""
    group: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,60}$")] = "export"
    """The consumer group of the exporters, after the prefix. All that write one table are of one group."""
    rows_max: Count = 200_000
    """Events of one commit: a commit is made when so many wait."""
    bytes_max: Annotated[int, Field(ge=1, le=256 * 1024 * 1024)] = 32 * 1024 * 1024
    """Bytes of rows of one commit, as they lie in memory: a commit is made when so many wait. Default 32 MiB, which
    keeps an exporter under 500 MB; more make larger files, which compaction makes anyway."""
    age_s: Positive = 60.0
    """Seconds for which an event waits for company at most, by the exporter's own steady clock: so this is the
    longest time to durable while nothing is wrong. Shorter makes more and smaller files."""

    blobs: Literal["copy", "check"] = "copy"
    """What an exporter does about a blob that an event names, before the commit of that event: `copy` brings it to
    `blobs/` beside the tables, `check` only looks whether the blob store has it. One that is missing or altered is
    named and counted, and holds nothing up."""

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        if not url or ("://" in url and not url.startswith(COLD_SCHEMES)):
            raise ValueError(f"{url!r} is no place for tables; use a directory, file:///, s3:// or gs://")
        if url.startswith(("s3://", "gs://")) and not urlsplit(url).netloc:
            raise ValueError(f"{url!r} names no bucket; use s3://BUCKET[/PREFIX] or gs://BUCKET[/PREFIX]")
        if "@" in urlsplit(url).netloc:
            raise ValueError("a cold address carries no user or password; set them in [cold.options]")
        return url

    def store_options(self) -> dict[str, str]:
        """The options in plain text, for the store alone. Never print them."""
        return {name: value.get_secret_value() for name, value in self.options.items()}


class RetentionSettings(Section):
    """What the log may let go of once the cold tier has it (`tracklog retention`)."""

    keep_days: Annotated[float, Field(ge=0)] = 7.0
    """Days, by the log's time, for which everything stays. Must be longer than any process may be frozen and wake up;
    0 keeps nothing for its age. Nothing goes without `tracklog retention apply --yes`."""
