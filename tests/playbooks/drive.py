"""Runs a playbook's steps on a test host by hand, and takes them back: it knows nothing of `doctor fix`.

So a playbook is proven by itself, each step with its own undo.
"""

from __future__ import annotations

import base64
import re
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from doctor.fix.file_edits import edited_content
from doctor.remedy.playbook import Playbook, PlaybookStep, fill_step
from tests.hosts.fleet import INSIDE, Fleet

ENVIRON = {**INSIDE, "PATH": f"{INSIDE['PATH']}:/usr/local/Ascend/driver/tools"}


class Driver:
    """What was done on one host, and how it is taken back."""

    def __init__(self, fleet: Fleet, host: str) -> None:
        self.fleet, self.host = fleet, host
        self.undos: list[tuple[str, Mapping[str, str]]] = []
        self.final: list[str] = []
        self.ran: list[tuple[str, str]] = []

    def sh(
        self, script: str, check: bool = True, values: Mapping[str, str] | None = None, **options: Any
    ) -> tuple[int, str]:
        environ, options = {**ENVIRON, **(values or {})}, {"stdin": subprocess.DEVNULL, **options}
        done = self.fleet.enter(self.host, script, env=environ, check=False, **options)
        assert not check or done.returncode == 0, f"{self.host}: {script}\nexit {done.returncode}\n{done.stderr}"
        return done.returncode, done.stdout.strip()

    def apply(self, playbook: Playbook, findings: Iterable[Mapping[str, Any]]) -> None:
        """All steps, once for each finding's values; the same command twice is run once."""
        for values in findings:
            for step in playbook.steps:
                self._step(step, values)

    def _step(self, step: PlaybookStep, values: Mapping[str, Any]) -> None:
        ready = fill_step(step, values)
        key = (ready.run, str(sorted(ready.values.items())))
        if step.manual or (ready.run and key in self.ran):
            return
        if ready.only:
            code, _ = self.sh(ready.only, check=False, values=ready.values)
            assert code in (0, 1), f"{ready.only}: exit {code}"
            if code:
                return
        if ready.keep:
            self._keep(ready.file)
            return
        if ready.file:
            self._edit(ready)
            return
        self.ran.append(key)
        before = self.sh(ready.before, values=ready.values)[1] if ready.before else ""
        environ = {**ready.values, "before": before}
        if ready.undo:
            self.undos.append((ready.undo, environ))
        if ready.irreversible:
            self.final.append(ready.irreversible)
        self.sh(ready.run, values=environ)

    def _keep(self, pattern: str) -> None:
        """Saves the files, and puts them back with their modes and owners; those that came meanwhile go."""
        archive = f"/run/kept-{id(self)}-{len(self.undos)}.tar"
        self.sh(f"tar -P -cf {archive} $(ls -d {pattern} 2>/dev/null) -T /dev/null")
        self.undos.append((f"rm -f {pattern}; tar -P -xf {archive}; rm {archive}", {}))

    def _edit(self, step: PlaybookStep) -> None:
        path = step.file
        code, coded = self.sh(f"base64 -w 0 {path}", check=False)
        old = base64.b64decode(coded) if code == 0 else None
        filtered = None
        if step.filter:
            done = self.fleet.enter(
                self.host, step.filter, env={**ENVIRON, **step.values}, input=old or b"", text=False, check=False
            )
            assert done.returncode == 0, done.stderr
            filtered = self._lowered(step.file, done.stdout)
        new = edited_content(old, step, filtered)
        if new == old:
            return
        put = "echo {} | base64 -d >" + path
        back = f"rm {path}" if old is None else put.format(base64.b64encode(old).decode())
        self.undos.append((back, {}))
        self.sh(f"mkdir -p {path.rpartition('/')[0]}; {put.format(base64.b64encode(new or b'').decode())}")

    def _lowered(self, path: str, data: bytes) -> bytes:
        """Limits as root of the test host may set them."""
        if not path.startswith("/etc/security/") or self._can_raise():
            return data
        return re.sub(r"(?m)nofile \S+$|nproc \S+$|memlock \S+$", self._hard, data.decode()).encode()

    def _can_raise(self) -> bool:
        """Whether root of the test host may raise limits: root of some containers may not."""
        most = self._hard_limit("nofile")
        return most == "unlimited" or not self.sh(f"prlimit --nofile={int(most) + 1} true", check=False)[0]

    def _hard(self, observed_match: re.Match[str]) -> str:
        name = observed_match[0].split()[0]
        limit = self._hard_limit(name)
        return f"{name} {int(limit) // 1024 if name == 'memlock' and limit.isdigit() else limit}"

    def _hard_limit(self, name: str) -> str:
        return self.sh(f"prlimit --pid 1 --{name} --noheadings --raw -o HARD")[1]

    def undo(self) -> list[str]:
        """What could not be taken back, in the undo's own words."""
        final = self.final
        for command, values in reversed(self.undos):
            done = self.fleet.enter(
                self.host, command, env={**ENVIRON, **values}, check=False, stdin=subprocess.DEVNULL
            )
            if done.returncode:
                final.append(done.stderr.strip() or done.stdout.strip())
        self.undos, self.ran, self.final = [], [], []
        return final
