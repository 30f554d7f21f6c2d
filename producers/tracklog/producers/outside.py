"""What an agent's own code reads beside its session while it is replayed, found at its file and line (DESIGN §7).

Such a reading comes out otherwise next time, so a replay that lets it pass proves nothing. Watched are calls whose
caller is agent code: no part of Tracklog, of the standard library or of what is installed. A profile function sees
them however they were imported; it takes nothing away from them and is there for the time of a replay only. Sockets
and processes are closed to all code, by one audit hook that does nothing outside of a replay.
"""

from __future__ import annotations

import datetime
import os
import random
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Final

import tracklog

__all__ = ["let_through", "raised_at", "watched"]

Tell = Callable[[str], BaseException]
"""Takes what was read, and where; gives the error for who must not go on."""

CLOCK: Final = frozenset(
    {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "process_time",
        "process_time_ns",
    }
)
TODAY: Final = frozenset({"now", "utcnow", "today"})
LISTINGS: Final = frozenset({"listdir", "scandir"})
WALKS: Final = frozenset({"walk", "fwalk", "iterdir", "glob", "rglob", "iglob"})
ENVIRON_WRITES: Final = frozenset({"__setitem__", "__delitem__", "setdefault", "pop", "update", "clear"})
CLOSED: Final = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "socket.bind")
STARTED: Final = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")

_tell: ContextVar[Tell | None] = ContextVar("tracklog_outside", default=None)
_threads = threading.local()
_own_code: dict[str, bool] = {}
_hooked: list[bool] = []


@contextmanager
def watched(tell: Tell) -> Iterator[None]:
    """Within the block what this task and those it starts read outside is told. Blocks may lie side by side."""
    if not _hooked:
        _hooked.append(True)
        sys.addaudithook(_audit)
    token = _tell.set(tell)
    depth: int = getattr(_threads, "depth", 0)
    if depth == 0:
        _threads.before = sys.getprofile()
        sys.setprofile(_profile)
    _threads.depth = depth + 1
    try:
        yield
    finally:
        _threads.depth -= 1
        if _threads.depth == 0:
            sys.setprofile(_threads.before)
        _tell.reset(token)


@contextmanager
def let_through() -> Iterator[None]:
    """Around what a replay itself asks again, which reads outside rightly."""
    token = _tell.set(None)
    try:
        yield
    finally:
        _tell.reset(token)


def raised_at(error: BaseException) -> str:
    """The line of agent code that an error came through last; the one that raised it, where it came through none."""
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [one for one in frames if _is_agent_code(one[0])] or frames
    return f"{own[-1][0].f_code.co_filename}:{own[-1][1]}" if own else "an unknown place"


def _profile(frame: FrameType, event: str, called: Any) -> None:
    """Called at each call and return of the thread: what is most often the case is looked at first, and in place."""
    if event == "c_call":
        if _own_code.get(frame.f_code.co_filename) is not False:
            _look(frame, frame, called)
    elif event == "call":
        back = frame.f_back
        if back is not None and _own_code.get(back.f_code.co_filename) is not False:
            _look(back, frame, None)


def _look(caller: FrameType, frame: FrameType, called: Any) -> None:
    """At a call that agent code may have made; `called` is a function written in C, None for the one of the frame."""
    if not _is_agent_code(caller):
        return
    what = _of_function(frame) if called is None else _of_builtin(called)
    tell = _tell.get() if what else None
    if tell is not None:
        tell(f"{what} outside the session, at {_place(caller)}")


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not event.startswith(("socket.", "subprocess.", "os.")):
        return
    tell = _tell.get()
    if tell is None:
        return
    if event.startswith(CLOSED):
        raise tell(f"the network ({event}) outside the session, at {_place(_nearest(sys._getframe(1)))}")
    if event.startswith(STARTED):
        raise tell(f"a process ({event}) outside the session, at {_place(_nearest(sys._getframe(1)))}")


def _of_builtin(called: Any) -> str:
    """What a function written in C reads, "" for nothing of the kind."""
    name = getattr(called, "__name__", "")
    module = getattr(called, "__module__", None)
    owner = getattr(called, "__self__", None)
    if module == "time" and name in CLOCK:
        return f"the clock (time.{name})"
    if name in TODAY and isinstance(owner, type) and issubclass(owner, datetime.date):
        return f"the clock ({owner.__name__}.{name})"
    if module == "posix" or module == "nt":
        if name in LISTINGS:
            return f"a directory listing (os.{name})"
        return "randomness (os.urandom)" if name == "urandom" else ""
    return f"randomness (random.{name})" if _is_shared_random(owner) else ""


def _of_function(frame: FrameType) -> str:
    """What a function of the standard library that agent code called reads, "" for nothing of the kind."""
    code = frame.f_code
    module, name = frame.f_globals.get("__name__"), code.co_name
    if module == "random":
        if name == "__init__" and "x" in frame.f_locals:
            return "randomness (random.Random without a seed)" if frame.f_locals["x"] is None else ""
        return f"randomness (random.{name})" if _is_shared_random(frame.f_locals.get("self")) else ""
    if module == "uuid":
        return f"a random id (uuid.{name})" if name in ("uuid1", "uuid4", "uuid6", "uuid7", "uuid8") else ""
    if module == "secrets":
        return f"randomness (secrets.{name})"
    if module == "os" and name in ("getenv", "getenvb"):
        return f"the environment (os.{name})"
    if name in WALKS and str(module).partition(".")[0] in ("os", "glob", "pathlib"):
        return f"a directory listing ({module}.{name})"
    if module in ("os", "collections.abc", "_collections_abc") and frame.f_locals.get("self") is os.environ:
        return "" if name in ENVIRON_WRITES else "the environment (os.environ)"
    return ""


def _is_shared_random(owner: Any) -> bool:
    """Whether it is drawn from what everybody draws from; a generator with a seed of its own is no reading."""
    return owner is getattr(random, "_inst", None) or isinstance(owner, random.SystemRandom)


def _is_agent_code(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    known = _own_code.get(name)
    if known is None:
        known = _own_code[name] = not name.startswith("<") and not Path(os.path.abspath(name)).as_posix().startswith(
            _OTHERS
        )
    return known


def _nearest(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of agent code, or the innermost one."""
    at = frame
    while at is not None:
        if _is_agent_code(at):
            return at
        at = at.f_back
    return frame


def _place(frame: FrameType | None) -> str:
    return "an unknown place" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _roots() -> tuple[str, ...]:
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(f"{Path(os.path.abspath(one)).as_posix()}/" for one in (*installed, *tracklog.__path__))


_OTHERS: Final = _roots()
