"""Runs a server and stops it when the one who asked is gone, in whatever way.

``python guard.py USER COMMAND…`` starts the command (as USER, unless that is empty) and waits
for standard input to end: a pipe that only the tests hold open, so that it ends with them even
when they are killed. Then the command gets SIGTERM, and SIGKILL if it takes longer than 10 s.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading


def main(user: str, command: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C goes to the tests, which then leave
    server = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, start_new_session=True, **as_user(user)
    )
    threading.Thread(target=stop_at_end_of_input, args=(server,), daemon=True).start()
    return server.wait()


def as_user(user: str) -> dict[str, object]:
    """What ``subprocess`` takes to run something as `user`; nothing for an empty one."""
    if not user:
        return {}
    import pwd  # noqa: PLC0415  (not on every system; used as root only)

    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def stop_at_end_of_input(server: subprocess.Popen[bytes]) -> None:
    sys.stdin.buffer.read()
    server.terminate()
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
