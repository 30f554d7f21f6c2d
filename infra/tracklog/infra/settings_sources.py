"""Where settings come from: a TOML file, files with secrets, the environment, flags. Each value knows who gave it."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tracklog.infra.settings_base import Section
from tracklog.infra.settings_sections import Settings
from tracklog.schemas.errors import SettingsError

ENV_PREFIX: Final = "TRACKLOG_"
CONFIG_ENV: Final = "TRACKLOG_CONFIG"
CONFIG_NAME: Final = "tracklog.toml"
CONFIG_BYTES_MAX: Final = 1024 * 1024
OWN_FLAGS: Final = frozenset(("log", "redis", "blobs", "prefix"))
"""Settings that are options of every command; all others are given by `--set NAME=VALUE`."""
SECRETS_ENV: Final = "TRACKLOG_SECRETS"
SECRET_BYTES_MAX: Final = 64 * 1024

_NOT_SETTINGS = re.compile(r"TRACKLOG_(CONFIG|SECRETS|K8S_BIN|TEST_.*)\Z")
_SERVICE_LINK = re.compile(
    r"TRACKLOG_(\w*[^_]_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)\Z"
)
"""Kubernetes puts these into every pod of a namespace that has a Service called `tracklog...`."""

_OPEN_TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "kafka": ("kafka", "options"),
    "blobs.options": ("blobs", "options"),
    "cold.options": ("cold", "options"),
    "oidc.roles": ("oidc", "roles"),
    "redaction.patterns": ("redaction", "patterns"),
    "spans.headers": ("spans", "headers"),
}
"""Tables whose keys belong to others: client libraries, providers. Nested TOML tables in them are dotted names."""


class Given(NamedTuple):
    """One value as somebody gave it: its place in `Settings`, and the words that name it to that person."""

    path: tuple[str, ...]
    value: object
    source: str


def from_file(path: Path) -> list[Given]:
    """Reads a TOML file. Raises SettingsError when it cannot be read, is not TOML or has an unknown key."""
    try:
        with path.open("rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        if len(data) > CONFIG_BYTES_MAX:
            raise SettingsError(f"{path}: settings file is larger than {CONFIG_BYTES_MAX} bytes")
        tree = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot read settings file: {error.strerror}",
            hint=f"unset {CONFIG_ENV} or name another file",
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from error
    return [_placed(dotted, value, f"{path}: {dotted}", dotted) for dotted, value in _leaves(tree, "")]


def from_secrets(folder: Path) -> list[Given]:
    """Reads a folder in which each file is named as a setting (`kafka.sasl.password`) and holds its value.

    That is how Kubernetes mounts a Secret. A newline at the end is no part of a value; names that begin with a dot
    are the mount's own. Raises SettingsError that names the file, never what is in it.
    """
    try:
        files = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise SettingsError(
            f"{folder}: cannot read the folder of secrets: {error.strerror}",
            hint=f"unset {SECRETS_ENV} or name another folder",
        ) from error
    return [_placed(path.name, _secret_of(path), str(path), path.name) for path in files]


def _secret_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(
            f"{path}: cannot read this secret: {error.strerror}", hint="see who owns the file, and its mode"
        ) from error
    if len(data) > SECRET_BYTES_MAX:
        raise SettingsError(f"{path}: a secret is larger than {SECRET_BYTES_MAX} bytes")
    try:
        return data.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 at byte {error.start}") from None


def from_environ(environ: Mapping[str, str]) -> list[Given]:
    """Reads `TRACKLOG_*`. Raises SettingsError on a name that is no setting: no typo passes unseen."""
    names = sorted(name for name in environ if name.startswith(ENV_PREFIX))
    wanted = [name for name in names if not _NOT_SETTINGS.match(name) and not _SERVICE_LINK.match(name)]
    return [_placed(_dotted_of_env(name), environ[name], name, name) for name in wanted]


def from_flags(flags: Mapping[str, object]) -> list[Given]:
    """Reads flags by dotted name (`log`, `writer.barrier`); None means that the flag was not used."""
    return [_placed(name, value, _flag(name), name) for name, value in flags.items() if value is not None]


def _flag(name: str) -> str:
    """As it is given: only some settings have an option of their own."""
    return f"--{name}" if name in OWN_FLAGS else f"--set {name}"


def known_names() -> list[str]:
    """Every setting by its dotted name, sorted; a section with a `url` is also known by its own name."""
    return sorted(set(_schema_names()))


def env_name(dotted: str) -> str:
    """The environment variable of a setting: `TRACKLOG_WRITER__BARRIER`; `TRACKLOG_LOG` for `log.url`."""
    short = dotted.removesuffix(".url")
    return ENV_PREFIX + short.replace(".", "__").upper()


def _schema_names() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, Section)):
            yield name
            continue
        yield from (f"{name}.{inner}" for inner in section.model_fields)
        if "url" in section.model_fields:
            yield name


def _dotted_of_env(name: str) -> str:
    rest = name.removeprefix(ENV_PREFIX)
    if rest.startswith("KAFKA_"):
        return "kafka." + rest.removeprefix("KAFKA_").strip("_").lower().replace("_", ".")
    return rest.lower().replace("__", ".")


def _leaves(tree: Mapping[str, Any], before: str) -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        dotted = f"{before}.{key}" if before else key
        if isinstance(value, Mapping):
            yield from _leaves(value, dotted)
        else:
            yield dotted, value


def _placed(dotted: str, value: object, source: str, shown: str) -> Given:
    """Finds the place of a name. Raises SettingsError naming the nearest known one when there is none."""
    for table, path in _OPEN_TABLES.items():
        if dotted.startswith(f"{table}.") and len(dotted) > len(table) + 1:
            return Given((*path, dotted[len(table) + 1 :]), _as_option(value, source), source)
    if dotted in _OPEN_TABLES:
        raise SettingsError(f"{source}: {shown} is a table", hint=f"name its entries: {dotted}.NAME")
    if dotted not in known_names() or dotted == "kafka.options":
        raise SettingsError(f"{source}: unknown setting {shown}", hint=_nearest(dotted, shown))
    path = tuple(dotted.split("."))
    if f"{dotted}.url" in known_names():
        path = (*path, "url")
    return Given(path, value, source)


def _as_option(value: object, source: str) -> str:
    """Client libraries take strings; TOML also has numbers and booleans."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise SettingsError(f"{source}: a client option is a string, a number or a boolean, not {type(value).__name__}")


def nearest_name(dotted: str) -> str | None:
    """The setting whose name is most like it, by its whole or by its last word; None when none is."""
    names = known_names()
    close = difflib.get_close_matches(dotted, names, n=1, cutoff=0.5)
    if not close:
        tails = {name.rpartition(".")[2]: name for name in names}
        close = [tails[tail] for tail in difflib.get_close_matches(dotted.rpartition(".")[2], tails, n=1)]
    return close[0] if close else None


def _nearest(dotted: str, shown: str) -> str:
    close = nearest_name(dotted)
    if close is None:
        return "all settings are in docs/settings.md"
    return f"did you mean {env_name(close) if shown.startswith(ENV_PREFIX) else close}?"
