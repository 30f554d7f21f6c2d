"""One call of the command line: its settings, its output, and how it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from tracklog.consumers.cli.output import Output
from tracklog.schemas.errors import InputError, TracklogError

if TYPE_CHECKING:
    from tracklog.infra.settings import Settings

INTERRUPTED: Final = 130


class Run:
    """Made once per call. `faulty()` makes a command that goes on end with exit code 1."""

    def __init__(self, flags: Mapping[str, object], *, as_json: bool, environ: Mapping[str, str]) -> None:
        self.out = Output(as_json=as_json)
        self.as_json = as_json
        self.exit_code = 0
        self._flags = dict(flags)
        self._environ = environ
        self.role = ""

    @classmethod
    def of(cls, shared: Mapping[str, Any], *, environ: Mapping[str, str], role: str = "") -> Run:
        flags = {name: shared[name] for name in ("log", "redis", "blobs", "prefix", "config") if name in shared}
        for assignment in shared.get("settings", ()):
            name, separator, value = assignment.partition("=")
            flags[name] = value if separator else None
        run = cls(flags, as_json=bool(shared.get("as_json")), environ=environ)
        run.role = role
        return run

    @cached_property
    def settings(self) -> Settings:
        """Raises SettingsError."""
        from tracklog.infra.settings import load_settings

        missing = [name for name, value in self._flags.items() if value is None]
        if missing:
            raise InputError(f"--set {missing[0]} has no value", hint="write --set NAME=VALUE")
        settings = load_settings(flags=self._flags, environ=self._environ, cwd=Path.cwd())
        if settings.logging.format == "json":
            self._say_json()
        return settings

    @property
    def secrets(self) -> Path | None:
        """The folder of files with secrets; None without one."""
        from tracklog.infra.settings_sources import SECRETS_ENV

        named = self._environ.get(SECRETS_ENV)
        return None if named is None else Path.cwd() / named

    def _say_json(self) -> None:
        """From here on, of Python's own logging too."""
        from tracklog.infra.clock import SystemClock
        from tracklog.infra.lines import JsonLines

        self.out.lines = JsonLines(self.role, SystemClock())
        handler = logging.StreamHandler()
        handler.setFormatter(self.out.lines)
        logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)

    def taken(self, name: str) -> str | None:
        """The value of a `--set NAME=VALUE` that is the command's own, and no setting. To be asked for before those."""
        value = self._flags.pop(name, None)
        return None if value is None else str(value)

    def with_flags(self, flags: Mapping[str, object]) -> Run:
        """The same call with other settings."""
        return Run({**self._flags, **flags}, as_json=self.as_json, environ=self._environ)

    def faulty(self) -> None:
        self.exit_code = 1

    def interrupted(self) -> None:
        """A command that finishes its work after an interrupt."""
        self.out.note("interrupted")
        self.exit_code = INTERRUPTED

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Ends the process in one place: by exit code, with the error as one line and never as a traceback."""
        try:
            yield
            self.out.flush()
        except TracklogError as error:
            self.out.error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            self.out.note("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        if self.exit_code:
            raise typer.Exit(self.exit_code)
