"""Runs one server and ends it when those who asked for it are gone, however that happened.

    python -I -S watchdog.py LOG_FILE USERS_FILE COMMAND ARG...

Prints the server's pid, then waits. With `-` for USERS_FILE it waits for the end of its standard input: the
asking process holds the other end of that pipe, and the kernel closes it even after a SIGKILL. With a file it
waits for an exclusive lock on it: every user holds a shared one, which the kernel frees just as surely.

Prefer this to Linux's PR_SET_PDEATHSIG: that one fires when the *thread* that started the child ends, needs
code between fork and exec, knows one parent only, and is Linux only. The watchdog is the server's parent, so
the pid that it ends cannot have passed to a stranger.

Stands alone on purpose (standard library only, run by path): it starts in about 15 ms.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys

STOP_GRACE_S = 10.0


def main(log_file: str, users_file: str, *command: str) -> None:
    with open(log_file, "ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    if users_file == "-":
        sys.stdin.buffer.read()
        end(server)
        return
    with open(users_file, "ab") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        end(server)  # with the lock held: who comes now waits, then starts a server of its own


def end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
