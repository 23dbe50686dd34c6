"""Whether what a playbook does survives a reboot: its checks judge what the host loads when it starts.

A plan lays the files that its steps write over those of the host, and judges that. After the steps the host is read
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from doctor.collect.collector_request import CollectOptions, unique_facts
from doctor.collect.fanout import TimeLimits, gather
from doctor.engine.check import Check
from doctor.engine.fact import Fact, Output
from doctor.engine.record import HostRecord, Run
from doctor.engine.result import Report
from doctor.facts.boot import FORMS, NOT_LOOKED_AT, boot_facts
from doctor.facts.boot.firewall import BootFirewall
from doctor.fix.plan import ALREADY, HostPlan
from doctor.fix.select import ReadyStep, Treatment
from doctor.fix.verify import verify
from doctor.remedy.playbook import PlaybookStep, commands_write_files, writes_files
from doctor.transport import Transport
from doctor.transport.options import workers

NOT_KNOWN = "not known: "
LATER = "it is judged when the steps have been made"
NO_FILE = "no step writes a file that is loaded at boot"
UNJUDGED = "no check looks at the files that it writes"

Overlays = Mapping[str, Mapping[str, str]]
"""Texts by host and path: files as the steps leave them."""


class Survival(msgspec.Struct, frozen=True):
    """What a reboot leaves of the playbooks that were applied to a host."""

    host: str
    survives: dict[str, str]
    """For each playbook, why its changes are lost, or why that is not known; empty where they are not lost."""


def boot_run(
    run: Run, transport: Transport, checks: Sequence[Check], options: CollectOptions, timeout: float, overlays: Overlays
) -> Run:
    """``run`` as after a reboot: with what its hosts load when they start, and ``overlays`` in those files' places."""
    hosts = [host for host, record in run.hosts.items() if not record.visit.failure]
    facts = unique_facts(fact for fact in boot_facts(checks) if not fact.needs and fact.probe.kind != "visit")
    options_by_host = {
        host: msgspec.structs.replace(
            options, facts=facts, arguments={**options.arguments, BootFirewall.__name__: dict(overlays.get(host, {}))}
        )
        for host in hosts
    }
    answers = gather(hosts, transport, options_by_host, TimeLimits(timeout, 0, workers(len(hosts))))
    records = {
        host: _with_boot_outputs(record, answers.get(host), facts, overlays.get(host, {}))
        for host, record in run.hosts.items()
    }
    return msgspec.structs.replace(run, hosts=records, after_reboot=True)


def _with_boot_outputs(
    record: HostRecord, answer: HostRecord | None, facts: Iterable[type[Fact]], overlay: Mapping[str, str]
) -> HostRecord:
    if answer is None or answer.visit.failure:
        return record
    outputs = {**record.outputs, **answer.outputs}
    for fact in facts:
        if fact.probe.kind == "read" and fact.output_name() in outputs:
            files = {
                path: Output(out=text)
                for path, text in overlay.items()
                if any(fnmatchcase(path, pattern) for pattern in fact.probe.paths)
            }
            outputs[fact.output_name()] = {**outputs[fact.output_name()], **files}
    return msgspec.structs.replace(record, outputs=outputs)


class AppliedPlaybook(msgspec.Struct, frozen=True):
    """What one playbook does on one host."""

    steps: tuple[PlaybookStep, ...]
    """Those that are made, or were."""
    checks: frozenset[str]
    """Those whose findings it treats there."""


def surviving(
    report: Report, host: str, playbooks: Mapping[str, AppliedPlaybook], planned: bool = False
) -> dict[str, str]:
    """For each playbook why a reboot takes its changes back, or why that is not known; empty where it does not.

    By the report of a run as after a reboot. ``planned``: the steps have not been made; ``report`` knows the files that
    they will write.
    """
    return {name: _survives(report, host, applied, planned) for name, applied in playbooks.items()}


def _survives(report: Report, host: str, applied: AppliedPlaybook, planned: bool) -> str:
    verified = verify(report, {host: applied.checks}, (host,), (host,))
    looked_at = [entry for entry in verified if entry.reason != NOT_LOOKED_AT]
    writes, by_command = writes_files(applied.steps), commands_write_files(applied.steps)
    bad = [
        entry
        for entry in looked_at
        if entry.state != "green" and not (planned and writes and entry.state == "red" and _follows(entry.check))
    ]
    if not looked_at:
        return NOT_KNOWN + UNJUDGED if writes else NO_FILE
    if not bad:
        return ""
    if planned and by_command:
        return NOT_KNOWN + LATER
    worst = min(bad, key=lambda entry: entry.state == "unknown")
    certain = worst.state != "unknown" or not writes
    return f"{'' if certain else NOT_KNOWN}{worst.check}: {worst.reason}"


def _follows(check: str) -> bool:
    """A check that goes by what is now: a fault that stands now says nothing of the time after the steps."""
    return any(form.keeps_now for form in FORMS.get(check, ()))


def applied_playbooks(
    treatments: Iterable[Treatment], ready_steps: Sequence[ReadyStep], plan: HostPlan, names: Collection[str]
) -> dict[str, AppliedPlaybook]:
    """The playbooks of these names, each with its steps that the plan does not leave out."""
    steps: dict[str, list[PlaybookStep]] = {name: [] for name in names}
    for ready_step, preview in zip(ready_steps, plan.steps, strict=False):
        if ready_step.playbook.name in steps and (not preview.skip or preview.skip == ALREADY):
            steps[ready_step.playbook.name].append(ready_step.filled_step)
    checks = {name: {item.check for item in treatments if item.playbook.name == name} for name in names}
    return {name: AppliedPlaybook(tuple(steps[name]), frozenset(checks[name])) for name in names}
