"""A plan: what will be done on every host, exactly. Frozen, saved as JSON, and without secrets. Pure.

A plan shows; it is not what is run. Whoever applies it looks again, makes the steps anew, and goes on only when their
`digest` is the planned one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.record import redact
from doctor.engine.sanitize import plain, printable
from doctor.fix.conflicts import contradicting
from doctor.fix.context import How
from doctor.fix.file_edits import State, changed, difference
from doctor.fix.select import Act, Left, Treatment, fingerprint, message
from doctor.remedy.playbook import Playbook, Step, Unfillable

SCHEMA = "doctor.plan/1"
LONGEST = 4000
"""Characters of a command that are shown."""


class Seen(msgspec.Struct, frozen=True):
    """What a host said to one step before anything was done."""

    skip: str = ""
    """Why the step is left out."""
    before: str = ""
    trouble: str = ""
    """Why the step, and so the host, cannot be treated."""
    file: State | None = None


class Look(msgspec.Struct, frozen=True):
    """What one host said, before anything is done on it."""

    seen: tuple[Seen, ...] = ()
    """One for every act, until the first trouble."""
    root: str = ""
    """``login``: the login user is root; ``sudo``: through sudo -n; empty: not needed."""
    busy: tuple[str, ...] = ()
    """Who works on it."""
    trouble: str = ""


class Show(msgspec.Struct, frozen=True):
    """One step, as it is shown."""

    playbook: str
    say: str
    kind: str
    """``run``, ``look`` (a command that changes nothing), ``file``, ``hands``."""
    run: str = ""
    undo: str = ""
    diff: tuple[str, ...] = ()
    note: str = ""
    skip: str = ""


class Treated(msgspec.Struct, frozen=True):
    check: str
    message: str
    playbook: str


class HostPlan(msgspec.Struct, frozen=True):
    """What will be done on one host."""

    host: str
    treated: tuple[Treated, ...]
    steps: tuple[Show, ...] = ()
    root: str = ""
    busy: tuple[str, ...] = ()
    trouble: str = ""
    """Why nothing will be."""
    digest: str = ""

    @property
    def acts(self) -> bool:
        """There is something to do for software."""
        return not self.trouble and any(not one.skip and one.kind in ("run", "file") for one in self.steps)


class Book(msgspec.Struct, frozen=True):
    """A playbook, in a plan."""

    name: str
    title: str
    who: str
    risk: str
    root: bool
    persistent: bool
    note: str = ""

    @classmethod
    def of(cls, one: Playbook) -> Book:
        return cls(one.name, one.title, one.who, one.risk, one.root, one.persistent, one.note)


class Plan(msgspec.Struct, frozen=True):
    schema: str
    id: str
    when: str
    version: str
    source: str
    hosts: tuple[str, ...]
    """All that were looked at, for the checks that compare them."""
    names: tuple[str, ...]
    books: tuple[Book, ...]
    plans: tuple[HostPlan, ...]
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()
    how: How = How(hosts=(), source="")
    """What the command line and the environment said, for who applies it."""

    @property
    def to_do(self) -> tuple[HostPlan, ...]:
        return tuple(one for one in self.plans if one.acts)

    @property
    def code(self) -> int:
        """0 when all that was found is planned; 10 when something is not; 12 when only something unknown is left."""
        planned = {(one.host, check) for one in self.to_do for check in treated(one)}
        found = {(one.host, of.check) for one in self.plans for of in one.treated}
        found |= {(one.host, one.check) for one in self.left if one.kind in ("none", "hands", "explicit", "unfit")}
        if found - planned:
            return 10
        return 12 if any(one.kind == "unknown" for one in self.left) else 0


def treated(one: HostPlan) -> set[str]:
    """The checks for which something is done on the host."""
    acting = {step.playbook for step in one.steps if not step.skip and step.kind in ("run", "file")}
    return {each.check for each in one.treated if each.playbook in acting}


def host_plan(host: str, treatments: Sequence[Treatment], acts: Sequence[Act], look: Look) -> HostPlan:
    """What will be done on ``host``, that said ``look``."""
    of = tuple(dict.fromkeys(Treated(one.check, redact(message(one.finding)), one.playbook.name) for one in treatments))
    if look.trouble:
        return HostPlan(host, of, root=look.root, busy=look.busy, trouble=look.trouble)
    shows: list[Show] = []
    exact: list[Any] = [fingerprint(treatments)]
    try:
        steps = [act.with_before(seen.before) for act, seen in zip(acts, look.seen, strict=True)]
    except Unfillable as error:
        return HostPlan(host, of, (), look.root, look.busy, plain(redact(str(error))))
    against = _against(acts, steps, look.seen)
    files: dict[str, bytes | None] = {}
    for act, step, said in zip(acts, steps, look.seen, strict=True):
        if said.trouble:
            return HostPlan(host, of, tuple(shows), look.root, look.busy, _said(act, said.trouble))
        other = against.get(act.playbook.name, "")
        seen = Seen(said.skip or f"it would take back what {other} does", said.before) if other else said
        shows.append(_show(act, step, seen, files))
        exact.append([seen.skip, step.only, step.before, step.run, step.undo, step.changes, _exact(step, seen, files)])
    digest = hashlib.sha256(msgspec.json.encode(exact)).hexdigest()
    return HostPlan(host, of, tuple(shows), look.root, look.busy, digest=digest)


def _against(acts: Sequence[Act], steps: Sequence[Step], seen: Sequence[Seen]) -> dict[str, str]:
    written = [
        (act.playbook.name, step, said.file)
        for act, step, said in zip(acts, steps, seen, strict=True)
        if said.file and not said.skip and not said.trouble
    ]
    return contradicting(written)


def _said(act: Act, why: str) -> str:
    return f"{act.playbook.name}, step {act.template.number}: {plain(redact(why))}"


def _show(act: Act, step: Step, seen: Seen, files: dict[str, bytes | None]) -> Show:
    """The step as it is shown; ``files`` are as the steps before it leave them."""
    name, say = act.playbook.name, plain(redact(step.say), 400)
    if step.hands:
        return Show(name, say, "hands", skip=seen.skip)
    if step.file and not seen.file:
        return Show(name, say, "file", skip=seen.skip)
    if step.file and seen.file:
        real = seen.file.real
        old = files.get(real, seen.file.there)
        new = old if seen.skip else changed(old, step)
        files[real] = new
        note = f"a link: {printable(real)} is what is written" if real != step.file else ""
        skip = seen.skip or ("it is so already" if new == old else "")
        return Show(name, say, "file", diff=tuple(map(redact, difference(real, old, new))), note=note, skip=skip)
    kind = "run" if step.changes else "look"
    return Show(name, say, kind, _shown(step.run), _shown(step.undo), skip=seen.skip)


def _shown(command: str) -> str:
    return "\n".join(printable(line, LONGEST) for line in redact(command).splitlines())


def _exact(step: Step, seen: Seen, files: Mapping[str, bytes | None]) -> list[Any]:
    if not seen.file:
        return []
    after = files.get(seen.file.real)
    sha = hashlib.sha256(after).hexdigest() if after is not None else ""
    return [step.file, seen.file.real, seen.file.sha, seen.file.mode, seen.file.uid, seen.file.gid, step.mode, sha]
