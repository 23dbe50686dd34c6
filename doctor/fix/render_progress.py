"""Progress of applying or undoing a plan, as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.fix.apply import HostResult
from doctor.fix.plan import FixPlan
from doctor.fix.rollout import RolloutResult
from doctor.fix.undo import UndoResult
from doctor.fix.verify import Verification
from doctor.report.layout.formatting import clean, count_noun
from doctor.report.layout.host_names import Fleet

MAX_VERSION_LINES = 60
"""Lines of a difference that are shown; --json has them all."""


def host_result_text(host_result: HostResult) -> str:
    """One host's steps."""
    host = clean(host_result.host, 100)
    if host_result.state == "applied":
        lines = [f"applied  {host}: {clean(step)}" for step in host_result.applied]
        for name, why in host_result.survives.items():
            lasts = f"is lost at the next reboot: {clean(why)}" if why else "survives a reboot"
            lines.append(f"{'reboot' if why else 'ok':<8} {host}: {clean(name)} {lasts}")
        return "\n".join(lines)
    if host_result.state in ("refused", "busy"):
        return f"refused  {host}: {clean(host_result.reason)}; the host was not changed"
    lines = [f"applied  {host}: {clean(step)}" for step in host_result.applied]
    return "\n".join([*lines, f"FAILED   {host}: {clean(host_result.reason)}"])


_STATE_LABELS = {"green": "ok", "waits": "waits", "red": "FAILED", "new": "NEW", "unknown": "unknown"}


def verification_text(verification: Verification) -> str:
    """The result of a check after the steps, as text."""
    descriptions = {
        "green": "passes",
        "waits": "also depends on hosts that follow",
        "red": f"still fails: {verification.reason}",
        "new": f"failed since the fix, and passed before: {verification.reason}",
        "unknown": f"is unknown: {verification.reason}"
        + ("; not one of the rules that were found, so the rollout goes on" if verification.unrelated else ""),
    }
    label, description = _STATE_LABELS[verification.state], clean(descriptions[verification.state])
    return f"{label:<8} {clean(verification.host, 100)}: {verification.check} {description}"


def progress_text(update: HostResult | Verification) -> str:
    """A line or more, as it happens."""
    return host_result_text(update) if isinstance(update, HostResult) else verification_text(update)


def result_text(result: RolloutResult, plan: FixPlan) -> str:
    """The result, and the command that undoes it."""
    fleet = Fleet(plan.hosts)
    touched = [host_result.host for host_result in result.host_results if host_result.state in ("applied", "stopped")]
    unproven = {verification.host for verification in result.verifications if verification.state != "green"}
    proven = [
        host_result.host
        for host_result in result.host_results
        if host_result.state == "applied" and host_result.host not in unproven
    ]
    if result.stopped:
        verified_hosts = {verification.host for verification in result.verifications}
        proven = [host for host in proven if host in verified_hosts]
    lines = []
    if result.pending_hosts:
        lines.append(f"not started: {fleet.where(list(result.pending_hosts))}")
    if result.excluded_hosts:
        lines.append(f"excluded, and not changed: {fleet.where(list(result.excluded_hosts))}; they need a new plan")
    if touched:
        lines.append(f"To undo it: doctor fix --undo {result.id}")
    word = {0: "FIXED", 12: "UNKNOWN", 10: "NOT FIXED"}.get(result.code, "INTERRUPTED")
    total = len(plan.plans_to_apply) + len(result.excluded_hosts)
    rest = "; some findings are not part of this plan" if not result.code and plan.code else ""
    lines.append(f"{word}: {len(proven)} of {count_noun(total, 'host')} verified, {len(touched)} changed{rest}")
    return "\n".join(lines)


def undo_text(undo_results: Sequence[UndoResult]) -> str:
    """What became of every undo of one host."""
    lines = []
    for undo_result in undo_results:
        word = "undone" if undo_result.ok else "FAILED"
        detail = f" ({clean(undo_result.detail)})" if undo_result.detail else ""
        lines.append(f"{word:<8} {clean(undo_result.undo.host, 100)}: {clean(undo_result.undo.description)}{detail}")
        lines += [f"         {clean(line, 400)}" for line in undo_result.versions[:MAX_VERSION_LINES]]
    return "\n".join(lines)
