"""People's modules by name, as the command line gives them: as for `python -m`, the current directory first."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tracklog.schemas.errors import InputError

__all__ = ["failed", "imported", "is_module", "place_of"]


def is_module(name: str) -> bool:
    """True for what can be the dotted name of a module."""
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def imported(spec: str, module_name: str) -> ModuleType:
    """The module, for the part of a `spec` that names it. Raises InputError that says what is not there or fails."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (error.name == module_name or module_name.startswith(f"{error.name}.")):
            raise InputError(
                f"{spec}: there is no module {error.name!r}",
                hint=f"looked for in {here} and in what is installed",
            ) from error
        raise failed(spec, "fails to import", error) from error
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        raise failed(spec, "fails to import", error) from error


def failed(spec: str, what: str, error: BaseException) -> InputError:
    """What somebody's code raised, with the line of it."""
    return InputError(f"{spec} {what}: {type(error).__name__}: {error}{place_of(error)}")


def place_of(error: BaseException) -> str:
    """The line that failed, in brackets, of code that is not Tracklog's loading; empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f" ({error.filename}:{error.lineno})"
    own = (str(Path(__file__)), importlib.__file__)
    outside = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in own and not frame.filename.startswith("<frozen")
    ]
    return f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
