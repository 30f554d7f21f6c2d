"""Conditions in CEL, the Common Expression Language: the only module that knows its library (DESIGN §12).

A field that is not there makes a filter false: `body.tool == "book"` is asked of every event. Who must tell that from
a condition that does not fit asks `answer`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracklog.schemas.errors import InputError

if TYPE_CHECKING:
    import cel
else:
    _COMMAND_LINE = "cel.cli"
    # The library imports its own command line with itself, and with that a toolkit for terminals: nine tenths of the
    # time it takes, and 10 MB of an image. A placeholder stands there meanwhile.
    _placed = "cel" not in sys.modules and sys.modules.setdefault(_COMMAND_LINE, ModuleType(_COMMAND_LINE))
    import cel

    if _placed:
        del sys.modules[_COMMAND_LINE], cel.cli

_BOUND: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w+)\s*,")
_UNDEFINED: Final = "Undefined variable"
_NATIVE_ERRORS: Final = (ValueError, TypeError, RuntimeError)


class Missing(NamedTuple):
    """What a condition reads and is not there, in words."""

    name: str


class Condition:
    """One compiled expression over a map. `sample` has every name that may be used, with a value of its type.
    `stated` says where it stands, for errors.

    Raises InputError that names the expression: when it does not parse, uses a name that is not there, or does
    not give true or false. So a bad expression is refused before anything is read.
    """

    def __init__(self, expression: str, sample: Mapping[str, Any], stated: str) -> None:
        self.expression = expression
        self._stated = stated
        try:
            self._program = cel.compile(expression)
        except ValueError as error:
            raise self._refused(_reason(error), "see https://cel.dev for the language") from error
        self._check_names(sample)
        self.matches(sample)

    def matches(self, fields: Mapping[str, Any]) -> bool:
        """Raises InputError when the expression cannot be applied to these fields (a type that does not fit)."""
        return self.answer(fields) is True

    def answer(self, fields: Mapping[str, Any]) -> bool | Missing:
        """True or false, or what the answer rests on and is not there. Raises as `matches`."""
        try:
            answer = self._program.execute(dict(fields))
        except KeyError as error:
            return Missing(str(error.args[0]) if error.args else "a field")
        except IndexError:
            return Missing("an element of a list")
        except _NATIVE_ERRORS as error:
            if self._lacks_a_name(fields) and _UNDEFINED in str(error):
                return Missing("a field")
            raise self._refused(_reason(error)) from error
        if not isinstance(answer, bool):
            raise self._refused(f"it gives {answer!r}", "write a condition, such as turn > 3")
        return answer

    def _lacks_a_name(self, fields: Mapping[str, Any]) -> bool:
        return any(name not in fields for name in self._names)

    def _check_names(self, sample: Mapping[str, Any]) -> None:
        bound = set(_BOUND.findall(self.expression))
        self._names = [name for name in self._program.variables() if name not in bound]
        unknown = [name for name in self._names if name not in sample]
        if unknown:
            raise self._refused(f"there is no field {unknown[0]!r}", f"known are {', '.join(sorted(sample))}")

    def _refused(self, reason: str, hint: str = "") -> InputError:
        return InputError(f"{self._stated} {self.expression!r}: {reason}", hint=hint)


def _reason(error: Exception) -> str:
    """The library's words without its drawing of the place."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    found = re.search(r"ERROR: <input>:\d+:(\d+): (.*)", text)
    return f"{found[2].partition(' expecting {')[0]} (at character {found[1]})" if found else text
