"""The state of the suspect hosts now: the checks that a cause names, on the hosts that it names, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.diagnose.diagnosis import Cause, CheckedCause, CheckedFinding, CheckReason, Diagnosis, hosts_of
from doctor.diagnose.signature import Signature
from doctor.engine.addresses import is_plain_address
from doctor.engine.check import Check
from doctor.engine.record import HostRecord
from doctor.engine.result import Outcome, Status
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.session.examine import examine, examine_partial
from doctor.session.examine_options import ExamineOptions
from doctor.session.select_checks import choose_checks
from doctor.transport.this_host import resolve_name

MAX_CAUSES = 5
MAX_RESOLVED = 200
"""Host names that are resolved to find the one with an address."""
NOT_ASKED = "is no suspect: it was not asked"


def check_suspects(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    inventory: Inventory,
    catalog: Sequence[Check],
    options: ExamineOptions,
    environ: Mapping[str, str],
    progress: Callable[[str, HostRecord], None] = lambda host, record: None,
) -> Diagnosis:
    """The diagnosis with what the checks find now. ``inventory``: the hosts of the job; a log alone names no host
    that is connected to.
    """
    checked = []
    for cause in diagnosis.causes[:MAX_CAUSES]:
        names = [name for name in signatures[cause.signature].checks if any(check.name == name for check in catalog)]
        hosts = suspect_hosts(cause, inventory)
        if not names:
            checked.append(CheckedCause(hosts, reason="no check finds this cause"))
        elif not hosts:
            named = ", ".join(hosts_of(cause.culprits))
            reason = (
                filled("{0}: not among the hosts that were named", named) if named else "the logs do not show its host"
            )
            checked.append(CheckedCause(hosts, reason=reason))
        else:
            selected = choose_checks(catalog, names, roots=True)
            checked.append(_check(hosts, names, selected, inventory, options, environ, progress))
    return msgspec.structs.replace(diagnosis, checked=tuple(checked))


def suspect_hosts(cause: Cause, inventory: Inventory) -> tuple[str, ...]:
    """Those of the inventory's hosts that the cause names, by name, by short name, or by address."""
    if inventory.local:
        return inventory.hosts
    named = hosts_of(cause.culprits)
    return tuple(host for host in inventory.hosts if any(_is_same(host, name, inventory.hosts) for name in named))


def _is_same(host: str, name: str, hosts: Sequence[str]) -> bool:
    if host.lower() == name.lower():
        return True
    if is_plain_address(name.partition("%")[0]):
        return (
            not is_plain_address(host.partition("%")[0]) and len(hosts) <= MAX_RESOLVED and name in resolve_name(host)
        )
    short = name.partition(".")[0].lower()
    return (
        host.partition(".")[0].lower() == short
        and sum(other.partition(".")[0].lower() == short for other in hosts) == 1
    )


def _check(
    hosts: tuple[str, ...],
    names: Sequence[str],
    selected: Sequence[Check],
    inventory: Inventory,
    options: ExamineOptions,
    environ: Mapping[str, str],
    progress: Callable[[str, HostRecord], None],
) -> CheckedCause:
    suspects = msgspec.structs.replace(inventory, hosts=hosts, fleet=inventory.hosts)
    examination = examine(suspects, selected, options, environ, progress=progress)
    report = examination.report
    if len(hosts) < len(inventory.hosts) and examination.stopped is None:
        # What a check expects may depend on the number of hosts of the job: it is evaluated for all of them.
        records = examination.run.hosts
        report = examine_partial(inventory, records, selected, options, environ, NOT_ASKED, None).report
    if examination.stopped is not None:
        raise examination.stopped
    findings: list[CheckedFinding] = []
    passed: list[str] = []
    unknown: list[CheckReason] = []
    skipped: list[CheckReason] = []
    for outcome in report.outcomes:
        of_suspects = [finding for finding in outcome.findings if set(finding.hosts) & set(hosts) or not finding.hosts]
        for finding in of_suspects:
            severity, named = (
                outcome.severity_of(finding).name.lower(),
                tuple(filter(hosts.__contains__, finding.hosts)),
            )
            findings.append(CheckedFinding(outcome.check, severity, named, strip_control_chars(str(finding), 600)))
        if of_suspects or outcome.check not in names:
            continue
        reason, does_apply = _why_not(outcome, hosts)
        if reason:
            rows = unknown if does_apply else skipped
            rows.append(CheckReason(outcome.check, strip_control_chars(reason, 300)))
        else:
            passed.append(outcome.check)
    return CheckedCause(hosts, tuple(findings), tuple(passed), tuple(unknown), tuple(skipped))


def _why_not(outcome: Outcome, hosts: Sequence[str]) -> tuple[str, bool]:
    """Why a check without a finding says nothing of one of the hosts, and whether it applies to it.

    The reason is empty where it passed on all of them.
    """
    for host in (*hosts, ""):
        if host in outcome.crashed:
            return "the check crashed", True
        if host in outcome.unknown:
            return outcome.unknown[host].text, True
    for host in (*hosts, ""):
        if host in outcome.skipped:
            return outcome.skipped[host], False
    if outcome.status is Status.PASSED or set(hosts) <= set(outcome.evaluated_hosts):
        return "", True
    return "it did not evaluate the host", True
