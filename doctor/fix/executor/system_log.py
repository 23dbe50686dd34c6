"""What doctor fix does on a host stands in that host's log: as `logger -t doctor-fix -p auth.notice` writes it."""

import os
import socket

SOCKETS = ("/dev/log", "/run/systemd/journal/dev-log")
AUTH_NOTICE = 4 << 3 | 5
LINE_BYTES = 900  # RFC 3164 allows 1024 with the header


def log_line(request):
    """Writes one line; `logged` is False where the host has no log that listens."""
    return {"logged": write_log(request["text"])}


def log_outcome(text, result):
    """A line for a request that was answered, however it ended."""
    if "refused" in result:
        outcome = "not made: " + result["refused"]
    elif result.get("trouble") or result.get("code"):
        outcome = "failed: " + (result.get("trouble") or "status %d" % result["code"])
    else:
        outcome = "done"
    write_log("%s: %s" % (text, outcome))


def write_log(text):
    """Whether the line was taken. Line ends and control characters in it do not make another line."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    data = ("<%d>doctor-fix[%d]: %s" % (AUTH_NOTICE, os.getpid(), clean)).encode("utf-8", "replace")[:LINE_BYTES]
    for path in SOCKETS:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            with socket.socket(socket.AF_UNIX, kind) as connection:
                connection.settimeout(1)
                try:
                    connection.connect(path)
                    connection.send(data if kind == socket.SOCK_DGRAM else data + b"\0")
                    return True
                except OSError:
                    continue
    return False
