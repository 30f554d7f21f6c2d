"""Settings: defaults, a TOML file, files with secrets, the environment, flags; the later wins (docs/settings.md).

Nothing here reads the process's environment or current directory: both are parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from tracklog.infra.settings_http import IngestSettings
from tracklog.infra.settings_roles import CheckpointSettings, DispatchSettings, WorkerSettings
from tracklog.infra.settings_sections import (
    BlobSettings,
    KafkaSettings,
    LogSettings,
    LoopSettings,
    ProjectionSettings,
    RedisSettings,
    RegistrySettings,
    Settings,
    TopicSettings,
    WriterSettings,
)
from tracklog.infra.settings_sources import (
    CONFIG_ENV,
    CONFIG_NAME,
    SECRETS_ENV,
    Given,
    env_name,
    from_environ,
    from_file,
    from_flags,
    from_secrets,
    known_names,
)
from tracklog.schemas.errors import SettingsError

__all__ = [
    "BlobSettings",
    "CheckpointSettings",
    "DispatchSettings",
    "IngestSettings",
    "KafkaSettings",
    "LogSettings",
    "LoopSettings",
    "ProjectionSettings",
    "RedisSettings",
    "RegistrySettings",
    "Settings",
    "TopicSettings",
    "WorkerSettings",
    "WriterSettings",
    "env_name",
    "known_names",
    "load_settings",
]

CONFIG_FLAG: Final = "config"
COLD: Final = "cold:"


def load_settings(*, flags: Mapping[str, object] | None = None, environ: Mapping[str, str], cwd: Path) -> Settings:
    """The settings of this process, from all sources; local paths become absolute, seen from `cwd`.

    `flags` maps dotted names (`log`, `writer.barrier`) to values; None means not given. The file is the
    flag `config`, else `TRACKLOG_CONFIG`, else `tracklog.toml` in `cwd` if there is one; files with secrets are in
    the folder `TRACKLOG_SECRETS`. Raises SettingsError naming the key, where it was given and what to use instead.
    """
    rest = dict(flags or {})
    file = _config_file(rest.pop(CONFIG_FLAG, None), environ, cwd)
    given = [
        *(from_file(file) if file is not None else ()),
        *(from_secrets(cwd / environ[SECRETS_ENV]) if SECRETS_ENV in environ else ()),
        *from_environ(environ),
        *from_flags(rest),
    ]
    try:
        return Settings.model_validate(_anchored(_tree(given), cwd))
    except ValidationError as error:
        raise _explained(error, given) from error


def _config_file(flag: object, environ: Mapping[str, str], cwd: Path) -> Path | None:
    """A file that was named must exist; the one that lies about may be missing."""
    if flag is not None:
        return cwd / str(flag)
    if CONFIG_ENV in environ:
        return cwd / environ[CONFIG_ENV]
    default = cwd / CONFIG_NAME
    return default if default.exists() else None


def _tree(given: Sequence[Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value, _ in given:
        node = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = value
    return tree


def _anchored(tree: dict[str, Any], cwd: Path) -> dict[str, Any]:
    """Makes local paths absolute, so that a later change of directory moves nothing."""
    home = tree.get("home", Settings.model_fields["home"].default)
    if isinstance(home, str) and home:
        tree["home"] = str(cwd / home)
    log, blobs, checkpoints = tree.get("log", {}), tree.get("blobs", {}), tree.get("checkpoints", {})
    cold = tree.get("cold", {})
    if isinstance(log.get("url"), str) and log["url"].startswith("sqlite:") and log["url"] != "sqlite:":
        log["url"] = f"sqlite:{cwd / log['url'].removeprefix('sqlite:')}"
    if (
        isinstance(log.get("url"), str)
        and log["url"].startswith(COLD)
        and "://" not in log["url"]
        and log["url"] != COLD
    ):
        log["url"] = f"{COLD}{cwd / log['url'].removeprefix(COLD)}"
    if isinstance(cold.get("url"), str) and cold["url"] and "://" not in cold["url"]:
        cold["url"] = str(cwd / cold["url"])
    if isinstance(blobs.get("url"), str) and blobs["url"] and "://" not in blobs["url"]:
        blobs["url"] = str(cwd / blobs["url"])
    if isinstance(checkpoints.get("workspaces"), str) and checkpoints["workspaces"]:
        checkpoints["workspaces"] = str(cwd / checkpoints["workspaces"])
    return tree


def _explained(error: ValidationError, given: Sequence[Given]) -> SettingsError:
    """The first complaint, naming the setting and who gave it. A value that may be secret is never quoted."""
    first = error.errors(include_url=False, include_input=False)[0]
    loc = tuple(str(part) for part in first["loc"])
    sources = [one.source for one in given if one.path[: len(loc)] == loc]
    name = ".".join(loc).replace("kafka.options", "kafka")
    where = f"{sources[-1]}: " if sources else ""
    reason = first["msg"].removeprefix("Value error, ")
    return SettingsError(f"{where}setting {name}: {reason}", hint="see docs/settings.md")
