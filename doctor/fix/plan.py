"""A plan: what will be done on every host, exactly. Frozen, saved as JSON, and without secrets. Pure.

A saved plan is shown, not run. Applying it inspects the hosts again, builds the steps again, and continues only if
their `digest` is the planned one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.record import redact
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.fix.conflicts import find_conflicts
from doctor.fix.context import PlanContext
from doctor.fix.file_edits import FileState, edited_content, file_diff
from doctor.fix.select import ReadyStep, Treatment, Untreated, finding_message, fingerprint
from doctor.remedy.playbook import Playbook, PlaybookStep, TemplateError

SCHEMA = "doctor.plan/1"
MAX_COMMAND_CHARS = 4000
"""Characters of a command that are shown."""


class StepProbe(msgspec.Struct, frozen=True):
    """The state of one step on a host before any change."""

    skip: str = ""
    """Why the step is left out."""
    before: str = ""
    failure: str = ""
    """Why the step, and so the host, cannot be treated."""
    file: FileState | None = None


class HostInspection(msgspec.Struct, frozen=True):
    """The state of one host before any change."""

    probes: tuple[StepProbe, ...] = ()
    """One for every step, until the first failure."""
    root: str = ""
    """``login``: the login user is root; ``sudo``: through sudo -n; empty: not needed."""
    busy: tuple[str, ...] = ()
    """Who works on it."""
    failure: str = ""


class StepPreview(msgspec.Struct, frozen=True):
    """One step, as it is shown."""

    playbook: str
    description: str
    kind: str
    """``run``, ``look`` (a command that changes nothing), ``file``, ``hands``."""
    run: str = ""
    undo: str = ""
    diff: tuple[str, ...] = ()
    note: str = ""
    skip: str = ""


class TreatedFinding(msgspec.Struct, frozen=True):
    """A finding, and the playbook that treats it."""

    check: str
    message: str
    playbook: str


class HostPlan(msgspec.Struct, frozen=True):
    """What will be done on one host."""

    host: str
    treated: tuple[TreatedFinding, ...]
    steps: tuple[StepPreview, ...] = ()
    root: str = ""
    busy: tuple[str, ...] = ()
    failure: str = ""
    """Why nothing will be."""
    digest: str = ""

    @property
    def has_actions(self) -> bool:
        """There is something to do for software."""
        return not self.failure and any(not step.skip and step.kind in ("run", "file") for step in self.steps)


class PlaybookSummary(msgspec.Struct, frozen=True):
    """A playbook, in a plan."""

    name: str
    title: str
    who: str
    risk: str
    root: bool
    persistent: bool
    note: str = ""

    @classmethod
    def from_playbook(cls, playbook: Playbook) -> PlaybookSummary:
        return cls(
            playbook.name,
            playbook.title,
            playbook.who,
            playbook.risk,
            playbook.root,
            playbook.persistent,
            playbook.note,
        )


class FixPlan(msgspec.Struct, frozen=True):
    """What `doctor fix` will do on every host, as it is shown, saved and applied."""

    schema: str
    id: str
    when: str
    version: str
    source: str
    hosts: tuple[str, ...]
    """All checked hosts, for the checks that compare them."""
    names: tuple[str, ...]
    playbooks: tuple[PlaybookSummary, ...]
    host_plans: tuple[HostPlan, ...]
    untreated: tuple[Untreated, ...] = ()
    notes: tuple[str, ...] = ()
    context: PlanContext = PlanContext(hosts=(), source="")
    """Command line and environment of the plan, for applying it later."""

    @property
    def plans_to_apply(self) -> tuple[HostPlan, ...]:
        return tuple(plan for plan in self.host_plans if plan.has_actions)

    @property
    def code(self) -> int:
        """0 when all that was found is planned; 10 when something is not; 12 when only something unknown is left."""
        planned = {(plan.host, check) for plan in self.plans_to_apply for check in treated_checks(plan)}
        required = {(plan.host, treated_finding.check) for plan in self.host_plans for treated_finding in plan.treated}
        required |= {
            (untreated.host, untreated.check)
            for untreated in self.untreated
            if untreated.kind in ("none", "hands", "explicit", "unfit")
        }
        if required - planned:
            return 10
        return 12 if any(untreated.kind == "unknown" for untreated in self.untreated) else 0


def treated_checks(plan: HostPlan) -> set[str]:
    """The checks for which something is done on the host."""
    acting = {step.playbook for step in plan.steps if not step.skip and step.kind in ("run", "file")}
    return {treated_finding.check for treated_finding in plan.treated if treated_finding.playbook in acting}


def host_plan(
    host: str, treatments: Sequence[Treatment], ready_steps: Sequence[ReadyStep], inspection: HostInspection
) -> HostPlan:
    """What will be done on ``host``, that said ``inspection``."""
    treated_findings = tuple(
        dict.fromkeys(
            TreatedFinding(treatment.check, redact(finding_message(treatment.finding)), treatment.playbook.name)
            for treatment in treatments
        )
    )
    if inspection.failure:
        return HostPlan(host, treated_findings, root=inspection.root, busy=inspection.busy, failure=inspection.failure)
    previews: list[StepPreview] = []
    digest_input: list[Any] = [fingerprint(treatments)]
    try:
        steps = [
            ready_step.with_before(step_probe.before)
            for ready_step, step_probe in zip(ready_steps, inspection.probes, strict=True)
        ]
    except TemplateError as error:
        return HostPlan(
            host, treated_findings, (), inspection.root, inspection.busy, strip_control_chars(redact(str(error)))
        )
    conflicts = _find_conflicts(ready_steps, steps, inspection.probes)
    files: dict[str, bytes | None] = {}
    for ready_step, step, probe in zip(ready_steps, steps, inspection.probes, strict=True):
        if probe.failure:
            return HostPlan(
                host,
                treated_findings,
                tuple(previews),
                inspection.root,
                inspection.busy,
                _step_failure(ready_step, probe.failure),
            )
        other = conflicts.get(ready_step.playbook.name, "")
        effective_probe = (
            StepProbe(probe.skip or f"it would undo the change of {other}", probe.before) if other else probe
        )
        previews.append(_preview(ready_step, step, effective_probe, files))
        digest_input.append(
            [
                effective_probe.skip,
                step.only,
                step.before,
                step.run,
                step.undo,
                step.changes,
                _digest_fields(step, effective_probe, files),
            ]
        )
    digest = hashlib.sha256(msgspec.json.encode(digest_input)).hexdigest()
    return HostPlan(host, treated_findings, tuple(previews), inspection.root, inspection.busy, digest=digest)


def _find_conflicts(
    ready_steps: Sequence[ReadyStep], steps: Sequence[PlaybookStep], probes: Sequence[StepProbe]
) -> dict[str, str]:
    written = [
        (ready_step.playbook.name, step, probe.file)
        for ready_step, step, probe in zip(ready_steps, steps, probes, strict=True)
        if probe.file and not probe.skip and not probe.failure
    ]
    return find_conflicts(written)


def _step_failure(ready_step: ReadyStep, why: str) -> str:
    return f"{ready_step.playbook.name}, step {ready_step.template.number}: {strip_control_chars(redact(why))}"


def _preview(
    ready_step: ReadyStep, step: PlaybookStep, probe: StepProbe, files: dict[str, bytes | None]
) -> StepPreview:
    """The step as it is shown; ``files`` are as the steps before it leave them."""
    name, description = ready_step.playbook.name, strip_control_chars(redact(step.say), 400)
    if step.manual:
        return StepPreview(name, description, "hands", skip=probe.skip)
    if step.file and not probe.file:
        return StepPreview(name, description, "file", skip=probe.skip)
    if step.file and probe.file:
        real = probe.file.real
        old = files.get(real, probe.file.content)
        new = old if probe.skip else edited_content(old, step)
        files[real] = new
        note = f"a link: {printable(real)} is written" if real != step.file else ""
        skip = probe.skip or ("already in this state" if new == old else "")
        return StepPreview(
            name, description, "file", diff=tuple(map(redact, file_diff(real, old, new))), note=note, skip=skip
        )
    kind = "run" if step.changes else "look"
    return StepPreview(
        name, description, kind, _printable_command(step.run), _printable_command(step.undo), skip=probe.skip
    )


def _printable_command(command: str) -> str:
    return "\n".join(printable(line, MAX_COMMAND_CHARS) for line in redact(command).splitlines())


def _digest_fields(step: PlaybookStep, probe: StepProbe, files: Mapping[str, bytes | None]) -> list[Any]:
    if not probe.file:
        return []
    after = files.get(probe.file.real)
    sha = hashlib.sha256(after).hexdigest() if after is not None else ""
    return [step.file, probe.file.real, probe.file.sha, probe.file.mode, probe.file.uid, probe.file.gid, step.mode, sha]
