"""Playbooks, findings and reports, in few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from doctor.engine.result import ERROR, Finding, Outcome, Reason, Report, Waived
from doctor.fix.file_edits import FileState
from doctor.fix.plan import HostInspection, StepProbe
from doctor.remedy.playbook import Playbook, PlaybookStep

HOSTS = ("a1", "a2", "a3")


def book(name: str = "mend", treats: Sequence[str] = ("short",), *steps: PlaybookStep, **more: Any) -> Playbook:
    parameters: dict[str, Any] = {"who": "host admin", "risk": "low", "root": True, **more}
    return Playbook(name, f"{name}.toml", f"Title of {name}", tuple(treats), steps=steps or (run(),), **parameters)


def run(number: int = 1, sh: str = 'set "$expected"', undo: str = 'set "$before"', **more: Any) -> PlaybookStep:
    return PlaybookStep(number, f"Step {number}", run=sh, undo=undo, **{"before": "get", **more})


def file(number: int = 1, path: str = "/etc/x", **more: Any) -> PlaybookStep:
    return PlaybookStep(number, f"Step {number}", file=path, **{"line": "x = {expected}", **more})


def sample_finding(*hosts: str, template: str = "it is {observed}", **values: Any) -> Finding:
    return Finding(template, hosts=hosts, **{"observed": 1, "expected": 2, **values})


def outcome(check: str = "short", *findings: Finding, **more: Any) -> Outcome:
    parameters: dict[str, Any] = {"evaluated_hosts": HOSTS, "complete": True, **more}
    return Outcome(check, ERROR, parameters.pop("area", "kernel"), f"{check} is well", tuple(findings), **parameters)


def report(*outcomes: Outcome) -> Report:
    return Report("3 hosts from a test", HOSTS, outcomes)


def waived(finding: Finding) -> Waived:
    return Waived(finding, "as the site wants it", "2027-01-01")


def reason(text: str) -> Reason:
    return Reason(text)


def state(data: bytes | None, real: str = "/etc/x", sha: str = "s") -> FileState:
    return FileState(real) if data is None else FileState(real, "file", data=data, sha=sha, mode=0o644)


def look(*observed: StepProbe, **more: Any) -> HostInspection:
    return HostInspection(tuple(observed), **{"root": "login", **more})
