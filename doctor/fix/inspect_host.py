"""Looks at a host, before anything is done on it: what the steps would meet, who works there. Read-only."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from doctor.engine.sanitize import plain
from doctor.fix.file_edits import State
from doctor.fix.plan import Look, Seen
from doctor.fix.remote_client import Declined, Hand, Lost
from doctor.fix.select import Act
from doctor.remedy.playbook import Step
from doctor.transport import Transport

LIMIT = 65536
"""Bytes of what a command says."""
SECONDS = 30.0
"""For a command that only looks."""


class Hands:
    """The ways to work on one host: as root and as the login user, each begun when it is first needed."""

    def __init__(self, transport: Transport, host: str, lock: float = -1.0) -> None:
        self._open: Callable[[bool], Hand] = lambda root: Hand(transport, host, root, lock)
        self._hands: dict[bool, Hand] = {}
        self.host = host

    def of(self, act: Act) -> Hand:
        """The one that a step is made by. Raises: Lost."""
        return self.as_(act.playbook.root)

    def as_(self, root: bool) -> Hand:
        """Raises: Lost."""
        if False not in self._hands:
            self._hands[False] = self._open(False)
        if self._hands[False].uid == 0:  # who logs in as root is root for every step
            return self._hands[False]
        if root not in self._hands:
            self._hands[root] = self._open(root)
        return self._hands[root]

    def most(self) -> Hand:
        """The one of those begun that can look into most. Raises: Lost."""
        return self._hands.get(True) or self.as_(False)

    def close(self) -> None:
        for hand in self._hands.values():
            hand.close()


def look(hands: Hands, acts: Sequence[Act]) -> Look:
    """What the steps would meet on the host. Raises: Lost."""
    login = hands.as_(False)
    root = ""
    if any(act.playbook.root for act in acts):
        root = "login" if login.uid == 0 else "sudo"
        hands.as_(True)
    seen: list[Seen] = []
    for act in acts:
        seen.append(_see(hands.of(act), act.ready))
        if seen[-1].trouble:
            break
    padded = [*seen, *(Seen() for _ in acts[len(seen) :])]
    return Look(tuple(padded), root)


def _see(hand: Hand, step: Step) -> Seen:
    if step.only:
        said = _ask(hand, step.only)
        if said["code"] == 1:
            return Seen(skip="does not apply here")
        if said["code"]:
            return Seen(trouble=f"`{step.only}` {failed(said)}")
    state = None
    if step.file:
        try:
            state = msgspec.convert(hand.call("peek", path=step.file), State)
        except Declined as why:
            return Seen(trouble=f"{step.file}: {why}")
        if state.trouble:
            return Seen(trouble=f"{state.real}: {state.trouble}", file=state)
    return _before(hand, step, state)


def _before(hand: Hand, step: Step, state: State | None) -> Seen:
    if not step.before:
        return Seen(file=state)
    said = _ask(hand, step.before)
    if said["code"] or said.get("cut"):
        return Seen(trouble=f"`{step.before}` {failed(said)}, and without what is there now nothing can be undone")
    return Seen(before=said["out"].strip(), file=state)


def before(hand: Hand, step: Step) -> str:
    """What the step's ``before`` prints. Raises: Lost; Declined."""
    seen = _before(hand, step, None)
    if seen.trouble:
        raise Declined(seen.trouble)
    return seen.before


def _ask(hand: Hand, sh: str) -> dict[str, Any]:
    try:
        return hand.call("run", SECONDS, sh=sh, limit=LIMIT)
    except Declined as why:
        return {"code": 126, "err": str(why), "out": ""}


def failed(said: dict[str, Any]) -> str:
    """How a command ended, in words."""
    if said.get("trouble"):
        return str(said["trouble"])
    if said.get("cut"):
        return f"printed more than {LIMIT} bytes"
    words = plain((said["err"].strip() or said["out"].strip()).splitlines()[-1] if said["err"] + said["out"] else "")
    ended = f"died of signal {-said['code']}" if said["code"] < 0 else f"ended with {said['code']}"
    return f"{ended}{f': {words}' if words else ''}"


def busy(hand: Hand) -> tuple[str, ...]:
    """Who works on the host: processes on its accelerators, Slurm jobs. What cannot be told counts as work.

    Raises: Lost.
    """
    try:
        said = hand.call("busy", SECONDS)
    except Declined as why:
        return (f"who uses its accelerators is not known: {why}", *_jobs(hand))
    found = [
        f"process {one['pid']} ({plain(one['name'])}, {plain(one['user'])}) uses {one['what']}"
        for one in said["holders"]
    ]
    if said["hidden"]:
        found.append(f"{said['hidden']} processes cannot be looked into without root")
    if said["trouble"]:
        found.append(plain(said["trouble"]))
    return (*found, *_jobs(hand))


_NO_SLURM = ("Invalid node name", "_establish_config_source", "establish a configuration source")
"""What squeue says where it is installed and there is no cluster, or not one with this host."""


def _jobs(hand: Hand) -> list[str]:
    """The Slurm jobs on the host, by our own ``squeue``, else by the host's."""
    if shutil.which("squeue"):
        argv = ["squeue", "-h", "-w", hand.host, "-o", "%i"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.TimeoutExpired):
            return ["Slurm does not tell its jobs: squeue did not answer"]
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        sh = 'command -v squeue >/dev/null || exit 0; squeue -h -w "$(hostname -s)" -o %i'
        said = _ask(hand, sh)
        code, out, err = said["code"], said["out"], said["err"]
    if code:
        return [] if any(words in err for words in _NO_SLURM) else [f"Slurm does not tell its jobs: {plain(err)}"]
    return [f"Slurm job {plain(job, 40)} runs on it" for job in out.split()]


__all__ = ["Hands", "Lost", "before", "busy", "failed", "look"]
