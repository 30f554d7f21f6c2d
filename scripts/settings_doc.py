"""Writes docs/settings.md from the settings classes; `--check` only says whether it is up to date."""

from __future__ import annotations

import ast
import inspect
from collections import abc
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

from pydantic import SecretStr
from pydantic_core import PydanticUndefined

from scripts.page import write_or_check
from tracklog.infra import (
    settings_cold,
    settings_health,
    settings_http,
    settings_redaction,
    settings_roles,
    settings_sections,
    settings_spans,
)
from tracklog.infra.settings import env_name
from tracklog.infra.settings_base import Section
from tracklog.infra.settings_sections import KAFKA_OPTIONS_FIXED, Settings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
KINDS = {"bool": "true or false", "str": "text", "int": "whole number", "float": "number"}
HEAD = """\
# Settings

Written by `scripts/settings_doc.py` from `infra/tracklog/infra/settings_sections.py`; change it there.

Each value comes from the last of these that gives it:

1. the default below;
2. a TOML file: the flag `--config`, else `TRACKLOG_CONFIG`, else `tracklog.toml` where the command runs;
3. files with secrets: in the folder that `TRACKLOG_SECRETS` names, each is named as a setting (`kafka.sasl.password`,
   `redis.password`) and holds its value, as Kubernetes mounts a Secret;
4. the environment: `TRACKLOG_<SECTION>__<FIELD>`; short for addresses (`TRACKLOG_LOG` is `log.url`);
5. flags of the command.

```toml
# tracklog.toml
prefix = "tracklog"
log = "kafka://broker-1:9092,broker-2:9092"     # short for url = ... under [log]
redis = "redis://redis:6379/0"

[writer]
barrier = "replicated"

[kafka]                                         # handed to the client as it is
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
```

An unknown name is an error that names it, where it was given, and the nearest known one. Times are in
seconds, sizes in bytes. Local paths are seen from the current directory. Passwords belong into files with secrets, else
into the environment;
`tracklog doctor --json` prints all settings with secrets masked. `TRACKLOG_TEST_*` and `TRACKLOG_K8S_BIN` are for the
test suite; the variables that Kubernetes sets for a Service named `tracklog...` (`TRACKLOG_REDIS_PORT=tcp:...`) are
ignored.
"""


def page() -> str:
    """The whole page as text."""
    parts = [HEAD, *_section("General", Settings, "")]
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            parts += _section(f"[{name}]", section, f"{name}.")
    parts += ["## Kafka options that cannot be set\n", *_fixed_options()]
    return "\n".join(parts).rstrip() + "\n"


def _section(title: str, section: type[Section], before: str) -> Iterator[str]:
    docs = _field_docs(section)
    yield f"## {title}\n"
    if before:
        yield f"{inspect.cleandoc(section.__doc__ or '')}\n"
    for name, field in section.model_fields.items():
        if name in docs:
            yield f"### `{before}{name}`\n"
            kind, default = _kind(field.annotation), _default(field.get_default())
            yield f"`{_env(before + name)}`, {kind}, default {default}\n"
            yield f"{docs[name]}\n"


def _fixed_options() -> Iterator[str]:
    yield "| option | why |\n| --- | --- |"
    yield from (f"| `{option}` | {reason} |" for option, reason in sorted(KAFKA_OPTIONS_FIXED.items()))


def _field_docs(section: type[Section]) -> dict[str, str]:
    """The string under each field, as one paragraph."""
    (node,) = (node for node in classes() if node.name == section.__name__)
    docs = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docs[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return docs


def classes() -> list[ast.ClassDef]:
    """The source of every group of settings."""
    modules = (
        settings_sections,
        settings_roles,
        settings_http,
        settings_cold,
        settings_health,
        settings_redaction,
        settings_spans,
    )
    bodies = (ast.parse(inspect.getsource(module)).body for module in modules)
    return [node for body in bodies for node in body if isinstance(node, ast.ClassDef)]


def _env(name: str) -> str:
    if name == "kafka.options":
        return "TRACKLOG_KAFKA_<OPTION>"
    if name in ("blobs.options", "cold.options", "oidc.roles", "spans.headers"):
        return f"{env_name(name)}__<NAME>"
    return env_name(name)


def _kind(annotation: object) -> str:
    if annotation is SecretStr:
        return "secret text"
    if get_origin(annotation) is abc.Mapping:
        return "table of names and secret texts" if SecretStr in get_args(annotation) else "table of names and texts"
    if get_origin(annotation) is tuple:
        return "texts"
    choices = getattr(annotation, "__args__", ())
    if choices and not isinstance(annotation, UnionType):
        return "one of " + ", ".join(f"`{choice}`" for choice in choices)
    return KINDS[str(getattr(annotation, "__name__", annotation))]


def _default(value: object) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if value is PydanticUndefined or value in ("", None, ()):
        return "empty"
    if isinstance(value, tuple):
        value = ",".join(value)
    return f"`{value:g}`" if isinstance(value, float) and value < 1e6 else f"`{value}`"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page()))
