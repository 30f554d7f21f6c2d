"""Commands that are sent to a server of Redis at once, and whose answers are read later (DESIGN §6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import redis
from redis.cluster import RedisCluster
from redis.exceptions import RedisError, ResponseError, SlotNotCoveredError

__all__ = ["Line", "Lines", "Sent"]


class Sent:
    """A command under way. `answer`, once it was read: an exception where it is an error, or where it was lost."""

    __slots__ = ("answer", "line")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.answer: Any = _NOT_READ

    def read(self) -> Any:
        """Waits for it, and for those that were sent before it."""
        while self.answer is _NOT_READ:
            self.line.read_next()
        return self.answer


_NOT_READ: Final = object()


class Line:
    """One connection of a server's pool, held while answers are to be read from it. Used by one thread."""

    def __init__(self, server: redis.Redis) -> None:
        self._pool = server.connection_pool
        self._connection: Any = None
        self._unread: deque[Sent] = deque()

    def is_to(self, server: redis.Redis) -> bool:
        """A cluster's client may have met another server under the same name."""
        return self._pool is server.connection_pool

    def send(self, command: Sequence[str | bytes | int]) -> Sent:
        """Raises the library's error where nothing was sent: nobody answers."""
        if self._connection is None:
            self._connection = self._pool.get_connection()
        sent = Sent(self)
        try:
            packed = b"".join(self._connection.pack_command(*command))
            # the check is a question whose answer would be taken for that of a command
            self._connection.send_packed_command([packed], check_health=not self._unread)
        except RedisError as error:
            sent.answer = error
            self._lose(error)
        else:
            self._unread.append(sent)
        return sent

    def read_next(self) -> None:
        """One more answer. Those that cannot come any more are errors."""
        sent = self._unread.popleft()
        try:
            sent.answer = self._connection.read_response()
        except ResponseError as error:
            sent.answer = error
        except RedisError as error:
            sent.answer = error
            self._lose(error)
        if not self._unread:
            self._give_back()

    def _lose(self, error: RedisError) -> None:
        while self._unread:
            self._unread.popleft().answer = error
        self._connection.disconnect()
        self._give_back()

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection)


class Lines:
    """Of a client: one line to each server that it has."""

    def __init__(self, client: redis.Redis | RedisCluster) -> None:
        self._client = client
        self._lines: dict[str, Line] = {}

    def of(self, key: str) -> Line:
        """To the server that has the key, as far as the client knows. Raises the library's SlotNotCoveredError."""
        if isinstance(self._client, redis.Redis):
            name, server = "", self._client
        else:
            node: Any = self._client.get_node_from_key(key)  # type: ignore[no-untyped-call]
            name, server = node.name, self._client.get_redis_connection(node)
            if server is None:
                raise SlotNotCoveredError(f"{name} has left")
        line = self._lines.get(name)
        if line is None or not line.is_to(server):
            line = self._lines[name] = Line(server)
        return line
