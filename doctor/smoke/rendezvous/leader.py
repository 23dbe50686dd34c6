"""The leader of a launched job: gathers its processes, has the ranks watched, and tells everybody the verdict."""

from __future__ import annotations

import contextlib
import queue
import select
import time
from collections.abc import Sequence
from types import TracebackType

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import plain
from doctor.environment.launchers import Adopted
from doctor.smoke.model import SmokeRun, Trouble
from doctor.smoke.plan import Wish
from doctor.smoke.rendezvous.link import Card, Door, Guest, Mail, Stranger, ports, read_line, say
from doctor.smoke.rendezvous.placement import hosts, plan_for
from doctor.smoke.rendezvous.relay import Mailbox, Verdict
from doctor.smoke.rendezvous.roll_call import UNKNOWN, call
from doctor.smoke.results import to_facts
from doctor.smoke.run.supervisor import Ready, Smoked, Told, adopt
from doctor.transport.conversation import Lines
from doctor.transport.pipes import Socket

_LOOK = 0.05
_LINE = 1.0
_MOST = 1 << 16
"""Processes that are let in."""


class Lead:
    """Used in a ``with``, it answers who comes; at its end everybody is told how it went."""

    def __init__(self, adopted: Adopted, key: bytes) -> None:
        """Raises: OSError, when none of the ports is free."""
        self.adopted, self.code = adopted, 12
        self._inbox: queue.SimpleQueue[Guest] = queue.SimpleQueue()
        self._waiting: list[Guest] = []
        self._lines: list[Guest] = []
        self._mails: dict[tuple[str, int], Mail] = {}
        self._began = self._news = time.monotonic()
        self._mailbox = Mailbox(key)
        self._door = Door(key, ports(key, adopted.port), self._inbox.put)

    def __enter__(self) -> Lead:
        self._door.open()
        return self

    def abandon(self) -> None:
        """In a process that has forked off the leader."""
        self._door.abandon()
        self._mailbox.abandon()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.close()
        self._mailbox.close(self.code)
        for guest in [*self._waiting, *self._late()]:
            with contextlib.suppress(OSError):
                guest.link.settimeout(_LINE)
                say(guest.link, Verdict(self.code))
            guest.link.close()

    def smoke(self, wish: Wish, patience: float, told: Told) -> Smoked:
        """Raises: ValueError, when the ranks do not allow what was wished for."""
        trouble = self._gather(patience)
        cards, mails = [guest.card for guest in self._waiting], list(self._mails.values())
        if trouble:
            return self._without_run(trouble, cards, mails, wish)
        plan = plan_for(self.adopted, cards, (), wish)
        names = hosts(cards)
        ready = [
            Ready(
                names[guest.card.rank],
                (guest.card.rank,),
                Lines(names[guest.card.rank], Socket(guest.link)),
                guest.address,
            )
            for guest in self._lines
        ]
        made = adopt(plan, ready, told)
        notes = dict.fromkeys([*made.run.notes, *_notes(cards)])
        return msgspec.structs.replace(made, run=msgspec.structs.replace(made.run, notes=tuple(notes)))

    # ---- gathering

    def _gather(self, patience: float) -> Trouble | None:
        """Until all have come, or it is clear that they will not."""
        while True:
            self._take()
            now = time.monotonic()
            cards = [guest.card for guest in self._waiting]
            found = call(self.adopted, cards, list(self._mails.values()), now - self._news, now - self._began, patience)
            if isinstance(found, Trouble):
                return found
            if found == "complete" and len(self._lines) == len(self._waiting):
                return None
            if now - self._began > patience + _LINE:
                late = {card.rank for card in cards} - {guest.card.rank for guest in self._lines}
                text = "it came, and did not open a second connection for what it has to say"
                return Trouble("never-joined", tuple(sorted(late)), stage="rendezvous", text=text)

    def _take(self) -> None:
        """Takes in who and what has come, waiting a moment for it."""
        with contextlib.suppress(queue.Empty):
            guest = self._inbox.get(timeout=_LOOK)
            while True:
                self._seat(guest)
                guest = self._inbox.get_nowait()
        while mail := self._mailbox.take():
            self._note(mail)
        for guest in self._talking():
            self._hear(guest)

    def _seat(self, guest: Guest) -> None:
        if len(self._waiting) >= _MOST or guest.card.rank >= _MOST:
            guest.link.close()
            return
        (self._lines if guest.card.use == "lines" else self._waiting).append(guest)
        self._news = time.monotonic()

    def _late(self) -> list[Guest]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._inbox.get_nowait())
        return found

    def _talking(self) -> list[Guest]:
        poll = select.poll()
        by_file = {guest.link.fileno(): guest for guest in self._waiting}
        for file in by_file:
            poll.register(file, select.POLLIN)
        return [by_file[file] for file, _ in poll.poll(0)] if by_file else []

    def _hear(self, guest: Guest) -> None:
        """A process passes on what another one of its host has to say, or has ended."""
        try:
            self._note(msgspec.json.decode(read_line(guest.link, time.monotonic() + _LINE), type=Mail))
        except (OSError, Stranger, msgspec.MsgspecError, UnicodeError, RecursionError):
            guest.link.close()
            self._waiting.remove(guest)
            for other in [
                one for one in self._lines if (one.card.rank, one.card.pid) == (guest.card.rank, guest.card.pid)
            ]:
                other.link.close()
                self._lines.remove(other)
            text = "it came, and ended before all others had come"
            self._note(Mail(guest.card, "other", text))

    def _note(self, mail: Mail) -> None:
        sender = (mail.card.host, mail.card.pid)
        if sender not in self._mails and len(self._mails) < _MOST:
            self._news = time.monotonic()
        if sender in self._mails or len(self._mails) < _MOST:
            self._mails[sender] = mail

    # ---- when they cannot be gathered

    def _without_run(self, trouble: Trouble, cards: Sequence[Card], mails: Sequence[Mail], wish: Wish) -> Smoked:
        plan = plan_for(self.adopted, cards, mails, msgspec.structs.replace(wish, layouts=()))
        guilty = trouble.guilty or tuple(range(plan.world))
        victims = tuple(rank for rank in range(plan.world) if rank not in guilty)
        waited = round(time.monotonic() - self._began, 3)
        told = msgspec.structs.replace(trouble, guilty=guilty, victims=victims, seconds=waited)
        run = SmokeRun(plan, (told,), "trouble", seconds=waited, notes=tuple(dict.fromkeys(_notes(cards))))
        now = time.time()
        found = {}
        for host in dict.fromkeys(place.host for place in plan.places if place.host != UNKNOWN):
            found[host] = HostRecord(Visit(sent=now, received=now), to_facts.outputs(run, host, ()))
        return Smoked(run, found)


def _notes(cards: Sequence[Card]) -> list[str]:
    return [plain(note, 300) for card in cards for note in card.notes[:4]]
