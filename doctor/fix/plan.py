"""A plan: what will be done on every host, exactly. Frozen, saved as JSON, and without secrets. Pure.

A saved plan is shown, not run. Applying it inspects the hosts again, builds the steps again, and continues only if
their `digest` is the planned one.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.record import LaunchOptions
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import filled
from doctor.fix.dependence import find_conflicts, find_dependences, held_reason
from doctor.fix.file_edits import FileState, edited_content, file_diff
from doctor.fix.select import ReadyStep, Treatment, Untreated, finding_message, fingerprint
from doctor.hosts.nodeset import HostLogin
from doctor.remedy.playbook import Playbook, PlaybookStep, TemplateError, free_variables

SCHEMA = "doctor.plan/1"
MAX_PARALLEL_HOSTS = 64
"""Hosts that are inspected, or undone, at once."""
ALREADY = "already in this state"
"""Why a step that writes a file has nothing to do."""
MAX_COMMAND_CHARS = 4000
"""Characters of a command that are shown."""


class PlanContext(msgspec.Struct, frozen=True, kw_only=True):
    """The command line and the environment, as far as they matter; never a password."""

    hosts: tuple[str, ...]
    source: str
    local: bool = False
    slots: dict[str, int] = {}
    logins: dict[str, HostLogin] = {}
    """User and port of hosts whose list names them."""
    names: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()
    """Folders, as whole paths; so are all other paths here."""
    checks: tuple[str, ...] = ()
    config: str = ""
    launch: LaunchOptions = LaunchOptions()
    """The job's settings, but for ``environ`` and ``rank_table``."""
    environ: dict[str, str] = {}
    """The environment variables that are relevant to the job."""
    rank_table: str = ""
    sudo: bool = False
    timeout: float = 60.0
    connection: dict[str, Any] = {}
    """`doctor.cli.host_options.ConnectionOptions`, but for ``ask_pass``."""


class StepProbe(msgspec.Struct, frozen=True):
    """The state of one step on a host before any change."""

    skip: str = ""
    """Why the step is left out."""
    before: str = ""
    failure: str = ""
    """Why the step, and so its playbook, cannot be applied to the host."""
    file: FileState | None = None
    filtered: bytes | None = None
    """What the step's filter printed."""
    kept: dict[str, FileState] = {}
    """The files that other steps change."""
    managed: str = ""
    """The line of the file that says whose it is: a configuration management's."""


class HostInspection(msgspec.Struct, frozen=True):
    """The state of one host before any change."""

    probes: tuple[StepProbe, ...] = ()
    """One for every step; behind the first failure of a playbook its steps were not looked into."""
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
    survives: dict[str, str] = {}
    """For each playbook, why a reboot of this host takes its changes back, or why that is not known; empty where it
    does not."""
    left_out: dict[str, str] = {}
    """The playbooks that cannot be applied to this host, or that depend on such a one, each with the reason."""
    depends_on: dict[str, dict[str, str]] = {}
    """For a playbook the earlier ones that it depends on, each with the reason: it waits where one of them fails."""

    @property
    def acting_playbooks(self) -> set[str]:
        """The playbooks with a step that software performs."""
        return {step.playbook for step in self.steps if not step.skip and step.kind in ("run", "file")}

    @property
    def has_actions(self) -> bool:
        return not self.failure and bool(self.acting_playbooks)


class PlaybookSummary(msgspec.Struct, frozen=True):
    """A playbook, in a plan."""

    name: str
    title: str
    who: str
    risk: str
    root: bool
    note: str = ""

    @classmethod
    def from_playbook(cls, playbook: Playbook) -> PlaybookSummary:
        return cls(playbook.name, playbook.title, playbook.who, playbook.risk, playbook.root, playbook.note)


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
        """0: all that was found is planned; 10: something is not; 12: only unknowns are left; 78: there is no host."""
        planned = {(plan.host, check) for plan in self.plans_to_apply for check in treated_checks(plan)}
        required = {(plan.host, treated_finding.check) for plan in self.host_plans for treated_finding in plan.treated}
        required |= {
            (untreated.host, untreated.check)
            for untreated in self.untreated
            if untreated.kind in ("none", "hands", "explicit", "unfit")
        }
        if required - planned:
            return 10
        if any(untreated.kind == "unknown" for untreated in self.untreated):
            return 12
        return 0 if self.hosts else 78


def treated_checks(plan: HostPlan, completed: Collection[str] | None = None) -> set[str]:
    """The checks for which something is done on the host; with ``completed`` those that such playbooks alone treat."""
    acting = plan.acting_playbooks
    unfinished = set() if completed is None else acting - set(completed)
    waiting = {treated_finding.check for treated_finding in plan.treated if treated_finding.playbook in unfinished}
    treated = {treated_finding.check for treated_finding in plan.treated if treated_finding.playbook in acting}
    return treated - waiting


def _treated_findings(treatments: Sequence[Treatment]) -> tuple[TreatedFinding, ...]:
    findings = (
        TreatedFinding(treatment.check, hide_secrets(finding_message(treatment.finding)), treatment.playbook.name)
        for treatment in treatments
    )
    return tuple(dict.fromkeys(findings))


def host_plan(
    host: str, treatments: Sequence[Treatment], ready_steps: Sequence[ReadyStep], inspection: HostInspection
) -> HostPlan:
    """What will be done on ``host``, that said ``inspection``."""
    treated_findings = _treated_findings(treatments)
    if inspection.failure:
        return HostPlan(host, treated_findings, (), inspection.root, inspection.busy, inspection.failure)
    previews: list[StepPreview] = []
    digest_input: list[Any] = [fingerprint(treatments)]
    steps, failures = _filled_steps(ready_steps, inspection.probes)
    changed_files = list(map(_changed_files, ready_steps, inspection.probes))
    depends_on = find_dependences(host, treatments, ready_steps, changed_files)
    left_out = _with_dependent(failures, ready_steps, depends_on)
    skipped = {
        **_managed(ready_steps, inspection.probes),
        **_find_conflicts(ready_steps, steps, inspection.probes, left_out),
        **left_out,
    }
    files: dict[str, bytes | None] = {}
    for ready_step, step, probe in zip(ready_steps, steps, inspection.probes, strict=True):
        name = ready_step.playbook.name
        why = skipped.get(name, "")
        effective_probe = msgspec.structs.replace(probe, skip=probe.skip or why, file=None) if why else probe
        previews.append(_preview(ready_step, step, effective_probe, files))
        digest_input.append(
            [
                name not in left_out and effective_probe.skip,
                msgspec.to_builtins(msgspec.structs.replace(step, say="")),
                _digest_fields(step, effective_probe, files),
            ]
        )
    return HostPlan(
        host,
        treated_findings,
        tuple(previews),
        inspection.root,
        inspection.busy,
        digest=hashlib.sha256(msgspec.json.encode(digest_input)).hexdigest(),
        left_out=left_out,
        depends_on=depends_on,
    )


def planned_files(
    ready_steps: Sequence[ReadyStep], inspection: HostInspection, host_plan: HostPlan
) -> dict[str, bytes]:
    """The files as the steps of the plan leave them, by the path that the steps name."""
    files: dict[str, bytes | None] = {}
    for ready_step, probe, preview in zip(ready_steps, inspection.probes, host_plan.steps, strict=False):
        step = ready_step.filled_step
        if step.file and probe.file and not step.keep and not preview.skip:
            files[step.file] = edited_content(files.get(step.file, probe.file.content), step, probe.filtered)
    return {path: content for path, content in files.items() if content is not None}


def _filled_steps(
    ready_steps: Sequence[ReadyStep], probes: Sequence[StepProbe]
) -> tuple[list[PlaybookStep], dict[str, str]]:
    """The steps, wholly filled, and why playbooks cannot be applied here: their first failure."""
    steps, failures = [], dict[str, str]()
    for ready_step, probe in zip(ready_steps, probes, strict=True):
        why, step = probe.failure, ready_step.filled_step
        try:
            step = step if why else ready_step.with_before(probe.before)
        except TemplateError as error:
            why = str(error)
        steps.append(step)
        if why:
            failures.setdefault(ready_step.playbook.name, _step_failure(ready_step, why))
    return steps, failures


def _changed_files(ready_step: ReadyStep, probe: StepProbe) -> list[str]:
    """The path of a step's file, where it really lies, and the files that match a pattern; none of a skipped step."""
    path = ready_step.filled_step.file
    real = [probe.file.real] if probe.file else []
    return [path, *real, *probe.kept] if path and not probe.skip else []


def _with_dependent(
    failures: Mapping[str, str], ready_steps: Sequence[ReadyStep], depends_on: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """The playbooks that failed, and those that depend on them, each with the reason."""
    left_out = dict(failures)
    for name in dict.fromkeys(ready_step.playbook.name for ready_step in ready_steps):
        why = name not in left_out and held_reason(name, depends_on, left_out)
        if why:
            left_out[name] = filled("playbook {0}: {1}", name, why)
    return left_out


def _managed(ready_steps: Sequence[ReadyStep], probes: Sequence[StepProbe]) -> dict[str, str]:
    """The playbooks that would change a file of a configuration management, and were not named; with the reason."""
    reasons: dict[str, str] = {}
    for ready_step, probe in zip(ready_steps, probes, strict=True):
        name = ready_step.playbook.name
        if probe.managed and not probe.skip and not ready_step.named:
            header = filled("“{0}” stands in {1}", probe.managed, ready_step.filled_step.file)
            reasons.setdefault(
                name, filled("{0}: change it where it comes from, or name the playbook: doctor fix {1}", header, name)
            )
    return reasons


def _find_conflicts(
    ready_steps: Sequence[ReadyStep],
    steps: Sequence[PlaybookStep],
    probes: Sequence[StepProbe],
    left_out: Mapping[str, str],
) -> dict[str, str]:
    written = [
        (ready_step.playbook.name, step, probe.file, probe.filtered)
        for ready_step, step, probe in zip(ready_steps, steps, probes, strict=True)
        if probe.file and not probe.skip and ready_step.playbook.name not in left_out
    ]
    return {name: filled("it would undo the change of {0}", other) for name, other in find_conflicts(written).items()}


def _step_failure(ready_step: ReadyStep, why: str) -> str:
    step = filled("playbook {0}, step {1}", ready_step.playbook.name, ready_step.template.number)
    return filled("{0}: {1}", step, strip_control_chars(hide_secrets(why)))


def _preview(
    ready_step: ReadyStep, step: PlaybookStep, probe: StepProbe, files: dict[str, bytes | None]
) -> StepPreview:
    """The step as it is shown; ``files`` are as the steps before it leave them."""
    name, description = ready_step.playbook.name, strip_control_chars(hide_secrets(step.say), 400)
    if step.manual:
        return StepPreview(name, description, "hands", skip=probe.skip)
    if step.file and not probe.file:
        return StepPreview(name, description, "look" if step.keep else "file", skip=probe.skip)
    if step.file and probe.file:
        real = probe.file.real
        old = files.get(real, probe.file.content)
        new = old if probe.skip else edited_content(old, step, probe.filtered)
        files[real] = new
        notes = [filled("a link: {0} is written", printable(real))] if real != step.file else []
        notes += [filled("the file says: “{0}”", probe.managed)] if probe.managed else []
        skip = probe.skip or (ALREADY if new == old else "")
        diff = tuple(map(hide_secrets, file_diff(real, old, new)))
        return StepPreview(name, description, "file", diff=diff, note="; ".join(notes), skip=skip)
    kind = "run" if step.changes else "look"
    undo = shown_command(step.undo, step.values) if step.undo else ""
    note = (
        filled("cannot be undone: {0}", strip_control_chars(hide_secrets(step.irreversible), 400))
        if step.irreversible
        else ""
    )
    return StepPreview(name, description, kind, shown_command(step.run, step.values), undo, note=note, skip=probe.skip)


def shown_command(command: str, values: Mapping[str, str]) -> str:
    """A command below the variables that it reads, as a shell takes it; without secrets, on printable lines."""
    names = [name for name in free_variables(command) if name in values]
    assignments = " ".join(f"{name}={shlex.quote(values[name])}" for name in names)
    lines = [*(["; ".join([assignments.replace("\n", " ")])] if assignments else []), *command.strip().splitlines()]
    return "\n".join(printable(hide_secrets(line), MAX_COMMAND_CHARS) for line in lines)


def _digest_fields(step: PlaybookStep, probe: StepProbe, files: Mapping[str, bytes | None]) -> list[Any]:
    if step.keep:
        return [[path, *_identity(state)] for path, state in sorted(probe.kept.items())]
    if not probe.file:
        return []
    after = files.get(probe.file.real)
    sha = hashlib.sha256(after).hexdigest() if after is not None else ""
    return [step.file, *_identity(probe.file), sha]


def _identity(state: FileState) -> list[Any]:
    return [state.real, state.kind, state.sha, state.mode, state.uid, state.gid, state.link]
