"""Runs one server and ends it when the process that asked for it is gone, however that happened.

    python -I -S watchdog.py LOG_FILE COMMAND ARG...

Prints the server's pid, then waits for the end of its standard input. The asking process holds the other end
of that pipe, so the kernel closes it even after a SIGKILL. Prefer this to Linux's PR_SET_PDEATHSIG: that one
fires when the *thread* that started the child ends, needs code between fork and exec, and is Linux only.
The watchdog is the server's parent, so the pid that it kills cannot have passed to a stranger.

Stands alone on purpose (standard library only, run by path): it starts in about 15 ms.
"""

from __future__ import annotations

import subprocess
import sys


def main(log_file: str, *command: str) -> None:
    with open(log_file, "ab") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    server.kill()
    server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
