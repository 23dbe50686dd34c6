"""Lines from and to all agents at once: one thread each, one inbox for them all."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from doctor.engine.sanitize import plain
from doctor.smoke.protocol import Hello, Line, NotUnderstood, read_line
from doctor.smoke.run.bootstrap import why_none
from doctor.transport import Conversation, Unreached
from doctor.transport.conversation import close_all

Talk = Callable[[], Conversation]
Hear = Callable[[str, Line], None]
TICK = 0.02
"""Seconds that we sleep for at most while ranks run."""
FAREWELL = 1.5


class Party(msgspec.Struct, frozen=True):
    """One agent, and what it is in charge of."""

    host: str
    talk: Talk
    """Reaches it, starts it if need be, and sends it its request."""
    ranks: tuple[int, ...] = ()
    """Empty: all ranks of its host, by the plan."""
    address: str = ""
    """That we see it at."""


class Gone(msgspec.Struct, frozen=True):
    """No more lines will come from an agent, or none that can be trusted."""

    text: str
    kind: str = "lost"
    hint: str = ""
    code: int | None = None
    """The exit status, if it ended."""
    err: bytes = b""


class Channels:
    """All agents, by name: a host's, or one of several on it."""

    def __init__(self, parties: Mapping[str, Party], marker: str) -> None:
        self.parties = dict(parties)
        self.hear: Hear = lambda name, line: None
        """Is given every line that was understood, as `pump` takes it in."""
        self._marker = marker.encode("ascii") + b" "
        self._inbox: queue.SimpleQueue[tuple[str, bytes | Conversation | Gone]] = queue.SimpleQueue()
        self._conversations: dict[str, Conversation] = {}
        self._replies: dict[str, dict[str, Line]] = {}
        self._ticked = time.monotonic()
        self.hellos: dict[str, Hello] = {}
        self.met: dict[str, float] = {}
        """Our clock when they came."""
        self.gone: dict[str, Gone] = {}
        self.left: dict[str, list[tuple[int, str, str]]] = {}
        """What an agent could not end, by its farewell."""
        self.noise: dict[str, str] = {}
        """What a host said before its agent did."""
        self.quiet = dict.fromkeys(parties, 0.0)
        """Seconds that nothing was heard for, less those that we ourselves slept through."""
        self.late = 0.0
        """Seconds that we or an agent waited for a CPU lately; it fades."""
        for name, party in parties.items():
            threading.Thread(target=self._listen, args=(name, party.talk), daemon=True).start()

    def _listen(self, name: str, talk: Talk) -> None:
        """Carries one conversation, in a thread of its own; all that it hears goes through the inbox."""
        try:
            conversation = talk()
            self._inbox.put((name, conversation))
            for line in conversation:
                if line:
                    self._inbox.put((name, line))
            self._inbox.put((name, _ended(conversation)))
        except Unreached as stop:
            self._inbox.put((name, Gone(stop.text, stop.kind, stop.hint)))
        except Exception as error:  # noqa: BLE001 - the rim: one host's surprise must not end the run
            self._inbox.put((name, Gone(f"{type(error).__name__}: {error}", "error")))

    def pump(self, seconds: float = TICK) -> None:
        """Takes in what has come, and waits no longer than this for it."""
        try:
            self._take(*self._inbox.get(timeout=seconds))
            while True:
                self._take(*self._inbox.get_nowait())
        except queue.Empty:
            pass
        now = time.monotonic()
        gap, self._ticked = now - self._ticked, now
        self.late = max(self.late * 0.9, gap - 0.1, 0.0)
        for name in self.quiet:
            self.quiet[name] += min(gap, 0.1)

    def forget(self, name: str) -> None:
        """Goes on without an agent; what it still says is not heard. It is ended with the others."""
        del self.parties[name]
        del self.quiet[name]
        self.hellos.pop(name, None)
        self.gone.pop(name, None)

    def _take(self, name: str, what: bytes | Conversation | Gone) -> None:
        if not isinstance(what, (bytes, Gone)):
            self._conversations[name] = what
        elif name not in self.parties:
            if isinstance(what, Gone):
                self._conversations.pop(name, None)
        elif isinstance(what, Gone):
            self.gone.setdefault(name, what)
        elif what.startswith(self._marker):
            self._read(name, what[len(self._marker) :])
        elif name not in self.hellos:
            self.noise[name] = plain(what[:400])

    def _read(self, name: str, data: bytes) -> None:
        self.quiet[name] = 0.0
        if name in self.gone:
            return
        try:
            line = read_line(data)
            if line.hello:
                self.hellos[name] = line.hello
                self.met.setdefault(name, time.time())
            for key in ("stacks", "sockets", "probes"):
                if getattr(line, key) is not None:
                    self._replies.setdefault(key, {})[name] = line
            if line.bye:
                self.left[name] = line.bye.left
            self.late = max(self.late, min(line.late, 5.0))
            self.hear(name, line)
        except NotUnderstood as error:
            self.gone[name] = Gone(f"its agent says what cannot be understood: {plain(str(error))}", "error")

    def tell(self, name: str, order: Mapping[str, Any]) -> None:
        """Nothing happens where nobody hears: that it is gone comes through the inbox."""
        with contextlib.suppress(Unreached):
            self._conversations[name].send(json.dumps(order).encode("ascii") + b"\n")

    def ask(self, key: str, orders: Mapping[str, Mapping[str, Any]], seconds: float) -> dict[str, Line]:
        """The answers, of those agents that answered in time."""
        self._replies.pop(key, None)
        asked = {name: order for name, order in orders.items() if name in self.hellos and name not in self.gone}
        for name, order in asked.items():
            self.tell(name, order)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if asked.keys() <= self._replies.get(key, {}).keys() | self.gone.keys():
                break
            self.pump()
        return self._replies.get(key, {})

    def close(self) -> None:
        """Has every agent end all that it started, and closes the conversations."""
        for name in self._conversations:
            self.tell(name, {"do": "end"})
        deadline = time.monotonic() + FAREWELL
        ended = {name for name, gone in self.gone.items() if gone.kind != "error"}
        with contextlib.suppress(KeyboardInterrupt, SystemExit):
            while time.monotonic() < deadline and not self._conversations.keys() <= self.left.keys() | ended:
                self.pump()
                ended |= self.gone.keys()
        close_all(self._conversations.values(), 0.5)


def _ended(conversation: Conversation) -> Gone:
    code, words = conversation.code, plain(conversation.err[-400:])
    how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit status {code})"
    text = f"its agent ended{how}{': ' if words else ''}{words}"
    return Gone(text, why_none(words), code=code, err=conversation.err)
