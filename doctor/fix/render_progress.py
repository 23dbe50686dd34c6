"""Progress of applying or undoing a plan, as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import localized, phrase
from doctor.fix.apply import HostResult
from doctor.fix.plan import FixPlan
from doctor.fix.rollout import RolloutResult
from doctor.fix.survival import NOT_KNOWN, Survival
from doctor.fix.undo import UndoResult
from doctor.fix.verify import Verification
from doctor.report.layout.formatting import bracketed, clean, count_noun, translated
from doctor.report.layout.host_names import Fleet

MAX_VERSION_LINES = 60
"""Lines of a difference that are shown; --json has them all."""


def host_result_text(host_result: HostResult) -> str:
    """One host's steps."""
    host = clean(host_result.host, 100)
    lines = [_line("applied", host, translated(step)) for step in host_result.applied]
    if host_result.state in ("refused", "busy"):
        text = phrase("{reason}; the host was not changed", reason=translated(host_result.reason))
        return _line("refused", host, text)
    if host_result.state == "stopped":
        failures = dict.fromkeys([*host_result.failures.values(), host_result.reason])
        lines += [_line("FAILED", host, translated(why)) for why in failures]
        for name, why in host_result.held_back.items():
            text = phrase("{playbook} was not begun: {reason}", playbook=clean(name), reason=translated(why))
            lines.append(_line("held", host, text))
    return "\n".join(lines)


def survival_text(survival: Survival) -> str:
    """What a reboot leaves of each playbook that was applied to a host."""
    lines = []
    for name, why in survival.survives.items():
        values = {"playbook": clean(name), "reason": translated(why.removeprefix(NOT_KNOWN))}
        if not why:
            text = phrase("{playbook} survives a reboot", **values)
        elif why.startswith(NOT_KNOWN):
            text = phrase("whether {playbook} survives a reboot is not known: {reason}", **values)
        else:
            text = phrase("{playbook} is lost at the next reboot: {reason}", **values)
        lines.append(_line("reboot" if why else "ok", clean(survival.host, 100), text))
    return "\n".join(lines)


def _line(word: str, host: str, text: str) -> str:
    """``word`` is that of a state, which stays English, as in a report in a pipe."""
    return f"{word:<8} {host}{localized(': ')}{text}"


_STATE_LABELS = {"green": "ok", "waits": "waits", "red": "FAILED", "new": "NEW", "unknown": "unknown"}
_VERIFIED = {
    "green": "{check} passes",
    "waits": "{check} also depends on hosts that follow",
    "red": "{check} still fails: {reason}",
    "new": "{check} failed since the fix, and passed before: {reason}",
    "unknown": "{check} is unknown: {reason}",
}


def verification_text(verification: Verification) -> str:
    """The result of a check after the steps, as text."""
    names = {"check": verification.check, "reason": translated(verification.reason)}
    description = phrase(_VERIFIED[verification.state], **names)
    if verification.state == "unknown" and verification.unrelated:
        description += localized("; not one of the rules that were found, so the rollout goes on")
    return _line(_STATE_LABELS[verification.state], clean(verification.host, 100), description)


def progress_text(update: HostResult | Verification | Survival) -> str:
    """A line or more, as it happens."""
    if isinstance(update, Survival):
        return survival_text(update)
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
        lines.append(phrase("not started: {hosts}", hosts=fleet.where(list(result.pending_hosts))))
    if result.excluded_hosts:
        excluded = fleet.where(list(result.excluded_hosts))
        lines.append(phrase("excluded, and not changed: {hosts}; they need a new plan", hosts=excluded))
    if touched:
        lines.append(phrase("To undo it: {command}", command=f"doctor fix --undo {result.id}"))
    word = {0: "FIXED", 12: "UNKNOWN", 10: "NOT FIXED"}.get(result.code, "INTERRUPTED")
    total = len(plan.plans_to_apply) + len(result.excluded_hosts)
    rest = localized("; some findings are not part of this plan") if not result.code and plan.code else ""
    lines.append(
        phrase(
            "{word}: {proven} of {hosts} verified, {changed} changed",
            word=localized(word),
            proven=len(proven),
            hosts=count_noun(total, "host"),
            changed=len(touched),
        )
        + rest
    )
    return "\n".join(lines)


def undo_text(undo_results: Sequence[UndoResult]) -> str:
    """What became of every undo of one host."""
    lines = []
    for undo_result in undo_results:
        word = "undone" if undo_result.ok else "FAILED"
        description = f"{translated(undo_result.undo.description)}{bracketed(translated(undo_result.detail))}"
        lines.append(_line(word, clean(undo_result.undo.host, 100), description))
        lines += [f"         {clean(line, 400)}" for line in undo_result.versions[:MAX_VERSION_LINES]]
    return "\n".join(lines)
