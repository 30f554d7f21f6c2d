"""Where a worker's trajectories have their files: a directory each, in one that is this process's alone.

A process that was overtaken, frozen and woken writes to its own directories, never to those of the next owner; that one
has its own, brought back from the last checkpoint. So nothing rests on what is left here: directories of ended
trajectories are removed, and so are those of processes that are gone.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tracklog.infra.blobs import hash_of
from tracklog.infra.stack.file_lock import file_lock
from tracklog.producers.turn import Agent
from tracklog.producers.workspace_files import remove_tree
from tracklog.schemas.errors import StackError, WorkspaceError
from tracklog.schemas.values import Effect

__all__ = ["WorkerFiles", "has_files"]

logger = logging.getLogger(__name__)

NAME_BYTES_MAX: Final = 200
LOCK: Final = ".lock"


def has_files(agent: Agent) -> bool:
    """Whether its trajectories have a directory each: it has a tool that works in one."""
    return any(tool.effect is Effect.LOCAL for tool in agent.tools)


class WorkerFiles:
    """Opened for as long as the worker runs. `name` is one that no other process has ever had."""

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self._own = root / name
        self._stack = ExitStack()

    def open(self) -> None:
        """Makes the directory, and removes those of processes that are gone. Raises WorkspaceError."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            self._remove_left()
            self._stack.enter_context(file_lock(_lock_of(self._own), timeout_s=0.0))
            self._own.mkdir()
        except (OSError, StackError) as error:
            raise WorkspaceError(
                f"the workspaces of trajectories cannot be in {self._root}: {error}",
                hint="set checkpoints.workspaces to a directory that this process may write, or to nothing",
            ) from error

    def of(self, trajectory_id: str) -> Path:
        """The directory of a trajectory, which may not be there yet."""
        name = quote(trajectory_id, safe=" ")
        if len(name) > NAME_BYTES_MAX or name in (".", ".."):
            name = hash_of(trajectory_id.encode())
        return self._own / name

    def remove(self, trajectory_id: str) -> None:
        """The trajectory has ended: what its files were is in its last checkpoint."""
        at = self.of(trajectory_id)
        try:
            if at.exists():
                remove_tree(at)
        except OSError as error:
            logger.warning("the files of trajectory %s stay in %s: %s", trajectory_id, at, error)

    def close(self) -> None:
        """Removes the directory: what is in it is in the checkpoints, or is made again."""
        if self._own.exists():
            remove_tree(self._own)
        _lock_of(self._own).unlink(missing_ok=True)
        self._stack.close()

    def _remove_left(self) -> None:
        for at in self._root.iterdir():
            if not at.is_dir() or not _lock_of(at).exists():
                continue  # not one of ours
            try:
                with file_lock(_lock_of(at), timeout_s=0.0):
                    remove_tree(at)
                    _lock_of(at).unlink(missing_ok=True)
            except StackError:
                continue  # its process lives


def _lock_of(at: Path) -> Path:
    return at.with_name(at.name + LOCK)
