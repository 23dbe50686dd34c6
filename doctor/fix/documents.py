"""The JSON documents of `doctor fix`, beside the plan itself; ``doctor/report/schema`` has a JSON Schema of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from doctor.fix.apply import HostResult
from doctor.fix.rollout import RolloutResult
from doctor.fix.undo import UndoResult
from doctor.fix.verify import Verification


class FixedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor fix ID --apply --json`` prints: what became of an applied plan."""

    schema: Literal["doctor.fixed/1"] = "doctor.fixed/1"
    code: int
    """The exit code."""
    id: str
    host_results: tuple[HostResult, ...]
    verifications: tuple[Verification, ...]
    pending_hosts: tuple[str, ...]
    stopped: int
    """The exit code of the interrupt that ended it; 0: none did."""
    excluded_hosts: tuple[str, ...]
    """Hosts of the plan that were left out."""

    @classmethod
    def from_result(cls, result: RolloutResult, code: int) -> FixedDocument:
        return cls(code=code, **{name: getattr(result, name) for name in result.__struct_fields__})


class UndoneStep(msgspec.Struct, frozen=True):
    """What became of one step's undo."""

    host: str
    step: str
    """What the step did, in words."""
    undone: bool
    said: str
    versions: tuple[str, ...] = ()
    """Before, applied, now: lines for each difference that kept the step from being undone."""


class UndoDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor fix --undo ID --json`` prints."""

    schema: Literal["doctor.undo/1"] = "doctor.undo/1"
    id: str
    steps: tuple[UndoneStep, ...]

    @classmethod
    def from_results(cls, plan_id: str, results: Iterable[UndoResult]) -> UndoDocument:
        steps = (
            UndoneStep(result.undo.host, result.undo.description, result.ok, result.detail, result.versions)
            for result in results
        )
        return cls(id=plan_id, steps=tuple(steps))


class PlanRow(msgspec.Struct, frozen=True):
    """One saved plan."""

    id: str
    state: str
    """What became of it, or why it cannot be read."""
    hosts: int = 0
    """How many it acts on."""
    of: str = ""
    """What it was made for: a command line or a saved run."""


class PlansDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``doctor fix --list --json`` prints: every saved plan, oldest first."""

    schema: Literal["doctor.plans/1"] = "doctor.plans/1"
    plans: tuple[PlanRow, ...]
