"""Takes steps back, the last first: what a journal holds is enough, whatever became of who wrote it."""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence

import msgspec

from doctor.engine.record import redact
from doctor.fix.inspect_host import Hands, failed
from doctor.fix.journal import Journal, Undo
from doctor.fix.remote_client import Declined, Hand, Lost
from doctor.transport import Transport

SECONDS = 120.0
LIMIT = 4096
LOCK = 130.0
"""Seconds to wait for a step that a lost controller has begun."""


class Taken(msgspec.Struct, frozen=True):
    """What became of one step's undo."""

    undo: Undo
    ok: bool
    said: str
    lost: bool = False
    """The host is gone."""


class Undoing:
    """Undoes one journal, host by host, from many threads; after ``stop`` no step is begun."""

    def __init__(self, transport: Transport, journal: Journal, force: bool, stop: threading.Event) -> None:
        self.transport, self.journal, self.force, self.stop = transport, journal, force, stop

    def host(self, host: str, undos: Sequence[Undo]) -> list[Taken]:
        """One host's steps, given in the order in which they were made. Never raises for what a host does."""
        hands = Hands(self.transport, host, LOCK)
        taken: list[Taken] = []
        try:
            for one in reversed(undos):
                taken.append(self._one(hands, one))
                if lost := self._over(taken[-1]):
                    left = list(reversed(undos))[len(taken) :]
                    return [*taken, *(Taken(other, False, lost) for other in left)]
        finally:
            hands.close()
        return taken

    def _over(self, taken: Taken) -> str:
        """Why no more is tried on this host."""
        if taken.lost:
            return taken.said
        return "interrupted before it" if self.stop.is_set() else ""

    def _one(self, hands: Hands, one: Undo) -> Taken:
        lost = ok = False
        try:
            hand = hands.as_(one.root)
            self.journal.undoing(one)
            ok, said = self._file(hand, one) if one.file else self._command(hand, one)
        except Lost as error:
            lost, said = True, str(error)
        except Declined as error:
            said = str(error)
        said = redact(said)
        self.journal.undone(one, 0 if ok else 1, said)
        return Taken(one, ok, said, lost)

    def _command(self, hand: Hand, one: Undo) -> tuple[bool, str]:
        said = hand.call("run", SECONDS, sh=one.run, limit=LIMIT)
        ok = not said["code"] and not said.get("trouble")
        if not ok and one.before and self._as_it_was(hand, one):
            return True, "was as before already"
        return ok, "" if ok else f"the command {failed(said)}"

    def _as_it_was(self, hand: Hand, one: Undo) -> bool:
        now = hand.call("run", SECONDS, sh=one.before, limit=65536)
        return not now["code"] and not now["cut"] and now["out"].strip() == one.was

    def _file(self, hand: Hand, one: Undo) -> tuple[bool, str]:
        assert one.old
        old = {**msgspec.structs.asdict(one.old), "data": base64.b64encode(one.old.data).decode("ascii")}
        missing = one.old.missing
        said = hand.call("restore", path=one.file, old=old, new=one.new, missing=missing, force=self.force)
        return True, str(said["took"])


def by_host(undos: Sequence[Undo]) -> dict[str, list[Undo]]:
    found: dict[str, list[Undo]] = {}
    for one in undos:
        found.setdefault(one.host, []).append(one)
    return found
