"""Makes the steps of a plan on one host: each is written down, with its undo, before the host is asked for it."""

from __future__ import annotations

import base64
import hashlib
import threading
from typing import Any, Literal

import msgspec

from doctor.engine.record import redact
from doctor.engine.sanitize import plain
from doctor.fix.file_edits import State, changed
from doctor.fix.inspect_host import Hands, before, busy, failed, look
from doctor.fix.journal import Journal, Undo
from doctor.fix.plan import HostPlan, host_plan
from doctor.fix.remote_client import Declined, Hand, Lost
from doctor.fix.select import Act, Treatment
from doctor.remedy.playbook import Step, Unfillable
from doctor.transport import Transport

SECONDS = 120.0
"""For one step."""
LIMIT = 4096
LOCK = 10.0
"""Seconds to wait for another `doctor fix` on a host."""


class Done(msgspec.Struct, frozen=True):
    """What became of one host."""

    host: str
    state: Literal["applied", "busy", "refused", "stopped"]
    """``busy`` and ``refused``: nothing was done on it; ``stopped``: some of it was, or may have been."""
    applied: tuple[str, ...] = ()
    """The steps that were made, as they are said."""
    why: str = ""


class Work(msgspec.Struct, frozen=True):
    """What is to be done on a host: as it was planned, and what that was made from."""

    planned: HostPlan
    treatments: tuple[Treatment, ...]
    acts: tuple[Act, ...]


class Applying:
    """Applies one plan, host by host, from many threads; ``stop`` keeps every host from its next step."""

    def __init__(self, transport: Transport, journal: Journal, force: bool, stop: threading.Event) -> None:
        self.transport, self.journal, self.force, self.stop = transport, journal, force, stop

    def host(self, work: Work) -> Done:
        """Looks again, and makes the steps if nothing has changed since the plan. Never raises for what a host does."""
        hands = Hands(self.transport, work.planned.host, LOCK)
        made: list[str] = []
        try:
            against = self._against(hands, work)
            if against:
                return against
            self._steps(hands, work, made)
        except (Lost, Declined) as error:
            return Done(work.planned.host, "stopped" if made else "refused", tuple(made), redact(str(error)))
        except _Stopped as error:
            return Done(work.planned.host, "stopped", tuple(made), redact(str(error)))
        finally:
            hands.close()
        return Done(work.planned.host, "applied", tuple(made))

    def _against(self, hands: Hands, work: Work) -> Done | None:
        """What speaks against it, before the first step."""
        now = host_plan(hands.host, work.treatments, work.acts, look(hands, work.acts))
        if now.trouble or now.digest != work.planned.digest:
            return Done(hands.host, "refused", why=now.trouble or "it is no longer as it was planned")
        at_work = () if self.force else busy(hands.most())
        return Done(hands.host, "busy", why=f"{'; '.join(at_work[:3])} (--force goes on)") if at_work else None

    def _steps(self, hands: Hands, work: Work, made: list[str]) -> None:
        for act, show in zip(work.acts, work.planned.steps, strict=True):
            if show.skip or show.kind == "hands":
                continue
            if self.stop.is_set():
                raise Declined("interrupted before the next step")
            self._step(hands.of(act), act, show.say, made)

    def _step(self, hand: Hand, act: Act, say: str, made: list[str]) -> None:
        """Raises: _Stopped, when it was made and failed, or may have been made; Lost and Declined when it was not."""
        was = before(hand, act.ready)
        try:
            step = act.with_before(was)
        except Unfillable as error:
            raise Declined(plain(str(error))) from None
        request, undo, command = (_file if step.file else _command)(hand, act, step, was)
        try:
            number = self.journal.step(hand.host, act.playbook.name, say, command, undo)
        except OSError as error:
            raise Declined(f"the journal cannot be written: {error.strerror}") from None
        try:
            said = hand.call(**request)
        except Declined as why:
            self.journal.ended(number, hand.host, None, str(why), ran=False)
            raise
        except Lost as why:
            self.journal.ended(number, hand.host, None, f"not known: {why}")
            raise _Stopped(f"lost while it was at “{say}”, which may have been done or not: {why}") from None
        code = said.get("code", 0)
        self.journal.ended(number, hand.host, code, f"{said.get('out', '')}\n{said.get('err', '')}")
        if code or said.get("trouble"):
            raise _Stopped(f"“{say}”: the command {failed(said)}")
        made.append(say)


class _Stopped(Exception):
    """The host is left as it is: something was done on it, or may have been."""


def _command(hand: Hand, act: Act, step: Step, was: str) -> tuple[dict[str, Any], Undo | None, str]:
    undo = Undo(0, hand.host, act.playbook.root, step.say, step.undo, step.before, was) if step.undo else None
    return {"op": "run", "seconds": SECONDS, "sh": step.run, "limit": LIMIT}, undo, step.run


def _file(hand: Hand, act: Act, step: Step, was: str) -> tuple[dict[str, Any], Undo | None, str]:
    """Raises: Lost; Declined."""
    del was
    old = msgspec.convert(hand.call("peek", path=step.file), State)
    if old.trouble:
        raise Declined(f"{old.real}: {old.trouble}")
    new = changed(old.there, step)
    data = b"" if new is None else new
    sha = hashlib.sha256(data).hexdigest()
    there = old.kind == "file"
    request = {
        "op": "write",
        "path": old.real,
        "data": base64.b64encode(data).decode("ascii"),
        "mode": old.mode if there else int(step.mode or "644", 8),
        "uid": old.uid if there else None,
        "gid": old.gid if there else None,
        "sha": old.sha,
        "missing": old.missing,
    }
    undo = Undo(0, hand.host, act.playbook.root, step.say, file=old.real, old=old, new=sha)
    return request, undo, f"write {old.real}"
