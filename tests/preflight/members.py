"""Real processes of one launch on one host, forked from one that has everything loaded; told what to do by pipes.

Run as a program it is their parent: it reads orders on stdin, and all of them write what became of them to stdout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Members:
    """What the tests hold."""

    folder: Path
    """Where they meet."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._count = 0
        self._parent = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, rank: int | None, chosen: str = "local", until: float = 30.0, **order: Any) -> int:
        """A process that joins; its number here. Further words are fields of its place, and ``environ``."""
        self._count += 1
        own_values = {"TMPDIR": str(self.folder), **order.pop("environ", {})}
        self._order({"id": self._count, "rank": rank, "chosen": chosen, "until": until, "environ": own_values, **order})
        return self._count

    def announce(self, member: int, code: int, line: str, last: float = 5.0) -> None:
        """``last``: how long the leader may stay."""
        self._order({"to": member, "code": code, "line": line, "last": last})

    def quit(self, member: int) -> None:
        """Ends it as an accident of its own would, without a verdict."""
        self._order({"to": member, "code": -1, "line": "", "last": 0})

    def kill(self, member: int) -> None:
        """Kills it, and waits until the kernel has taken back what it held."""
        pid = self.hears(member, "pid")["pid"]
        os.kill(pid, signal.SIGKILL)
        stat = Path(f"/proc/{pid}/stat")
        with suppress(FileNotFoundError, ProcessLookupError):
            while stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(0.005)

    def hears(self, member: int, word: str) -> dict[str, Any]:
        """The first thing that it tells with this word in it."""
        assert self._parent.stdout
        while True:
            for event in self._events:
                if event["id"] == member and word in event:
                    return event
            line = self._parent.stdout.readline()
            assert line, "the members' parent has ended"
            self._events.append(json.loads(line))

    def ends(self, member: int) -> tuple[int, str, str]:
        """A follower's verdict."""
        event = self.hears(member, "joined")
        assert "code" in event, event
        return event["code"], event["line"], event["why"]

    def leads(self, member: int) -> bool:
        return "note" in self.hears(member, "joined")

    def reported(self, member: int) -> set[str]:
        """What it has told so far."""
        return {word for event in self._events if event["id"] == member for word in event}

    def clear(self) -> None:
        """Ends all that live."""
        self._order({"clear": True})

    def close(self) -> None:
        assert self._parent.stdin
        self._parent.stdin.close()
        self._parent.wait(10)
        assert self._parent.stdout
        self._parent.stdout.close()

    def _order(self, order: dict[str, Any]) -> None:
        assert self._parent.stdin
        self._parent.stdin.write(json.dumps(order) + "\n")


def send_event(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def member(order: dict[str, Any], orders: int) -> None:
    from doctor.environment.job_context import JobContext
    from doctor.preflight.host_leader import LeaderVerdict, join

    number, rank, environ = order.pop("id"), order.pop("rank"), order.pop("environ")
    chosen, until = order.pop("chosen"), time.monotonic() + order.pop("until")
    fields = {name: order.pop(name) for name in ("about", "patience") if name in order}
    identity = order.pop("identity", "the job")
    context = JobContext(kind="slurm", started="ranks", rank=rank, identity=identity, **order)
    send_event(id=number, pid=os.getpid())
    result = join(context, chosen, until, environ=environ, **fields)
    if isinstance(result, LeaderVerdict):
        send_event(id=number, joined=True, code=result.code, line=result.line, why=result.reason)
        return
    with result:
        send_event(id=number, joined=True, note=result.note)
        document = json.loads(os.read(orders, 10_000))
        if document["code"] >= 0:
            send_event(id=number, says=True)
            result.announce(document["code"], document["line"], time.monotonic() + document["last"])
    send_event(id=number, left=True)


def main() -> None:
    import doctor.preflight.host_leader

    assert doctor.preflight.host_leader
    pipes: dict[int, int] = {}
    children: list[int] = []
    for line in sys.stdin:
        order = json.loads(line)
        if "clear" in order:
            clear(children)
            continue
        if "to" in order:
            os.write(pipes[order["to"]], json.dumps(order).encode())
            continue
        orders, pipes[order["id"]] = os.pipe()
        child = os.fork()
        if not child:
            try:
                member(order, orders)
            finally:
                os._exit(0)
        children.append(child)
    clear(children)


def clear(children: list[int]) -> None:
    while children:
        child = children.pop()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
