"""A call that the command line cannot read, told as every other error: one line, a way out, and JSON where that was
asked for."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from typer.exceptions import TyperException

from tracklog.schemas.errors import InputError

__all__ = ["ends_with_help", "is_json", "told"]

SHARED: Final = "--set"


def is_json(arguments: Sequence[str] | None) -> bool:
    """Whether JSON was asked for. The call could not be read, so its words are looked through."""
    return "--json" in (sys.argv[1:] if arguments is None else arguments)


def ends_with_help(error: TyperException) -> bool:
    """Whether it is a group that was called without a command: its help is the answer."""
    return type(error).__name__ == "NoArgsIsHelpError"  # typer does not export it


def told(error: TyperException) -> InputError:
    """The same with the way out: the nearest name that there is, and where all are."""
    context: Any = getattr(error, "ctx", None)
    all_of_them = "see: tracklog --help"
    if context is not None:
        words = [one.info_name for one in _upwards(context)][:-1]
        all_of_them = f"see: {' '.join(['tracklog', *reversed(words)])} --help"
    message, _, near = _said(error).partition(" Did you mean ")
    option: str | None = getattr(error, "option_name", None)
    if near:
        return InputError(message.rstrip("."), hint=f"did you mean {near} {all_of_them}")
    named: Sequence[str] | None = getattr(error, "possibilities", None)
    if named:
        return InputError(error.message, hint=f"did you mean {' or '.join(sorted(named))}? {all_of_them}")
    if option is not None and getattr(error, "message", "").startswith("No such option"):
        return InputError(message, hint=f"{_setting_like(option)}{all_of_them}")
    return InputError(message.rstrip("."), hint=all_of_them)


def _said(error: TyperException) -> str:
    return " ".join(error.format_message().split())


def _upwards(context: Any) -> Any:
    while context is not None:
        yield context
        context = context.parent


def _setting_like(option: str) -> str:
    """Settings are no options, but for a few: one that was given as one is named as it is given."""
    from tracklog.infra.settings_sources import known_names, nearest_name

    name = option.lstrip("-").replace("-", "_")
    near = name if name in known_names() else nearest_name(name) if "." in name else None
    return "" if near is None else f"did you mean the setting {SHARED} {near}=VALUE? "
