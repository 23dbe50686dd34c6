"""What happens while a plan is applied, or taken back, in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.fix.apply import Done
from doctor.fix.plan import Plan
from doctor.fix.rollout import Result
from doctor.fix.undo import Taken
from doctor.fix.verify import Proof
from doctor.report.layout.formatting import clean, count
from doctor.report.layout.host_names import Fleet


def done_text(done: Done) -> str:
    """One host's steps."""
    host = clean(done.host, 100)
    if done.state == "applied":
        return "\n".join(f"applied  {host}: {clean(say)}" for say in done.applied)
    if done.state in ("refused", "busy"):
        return f"refused  {host}: {clean(done.why)}; nothing was changed on it"
    lines = [f"applied  {host}: {clean(say)}" for say in done.applied]
    return "\n".join([*lines, f"FAILED   {host}: {clean(done.why)}"])


_WORDS = {"green": "ok", "waits": "waits", "red": "FAILED", "unknown": "unknown"}


def proof_text(proof: Proof) -> str:
    """What a check says after the steps."""
    told = {
        "green": "is green",
        "waits": "takes other hosts too, whose turn comes",
        "red": f"still finds: {proof.why}",
        "unknown": f"cannot tell: {proof.why}",
    }
    return f"{_WORDS[proof.state]:<8} {clean(proof.host, 100)}: {proof.check} {clean(told[proof.state])}"


def told(one: Done | Proof) -> str:
    """A line or more, as it happens."""
    return done_text(one) if isinstance(one, Done) else proof_text(one)


def result_text(result: Result, plan: Plan) -> str:
    """How it ended, and how it is taken back."""
    fleet = Fleet(plan.hosts)
    touched = [one.host for one in result.done if one.state in ("applied", "stopped")]
    unproven = {one.host for one in result.proofs if one.state != "green"}
    proven = [one.host for one in result.done if one.state == "applied" and one.host not in unproven]
    if result.stopped:
        told = {one.host for one in result.proofs}
        proven = [host for host in proven if host in told]
    lines = []
    if result.not_begun:
        lines.append(f"not begun: {fleet.where(list(result.not_begun))}")
    if touched:
        lines.append(f"To take it back: doctor fix --undo {result.id}")
    word = {0: "MENDED", 12: "UNKNOWN", 10: "NOT MENDED"}.get(result.code, "INTERRUPTED")
    total = len(plan.to_do)
    rest = "; not all that was found was for this plan to mend" if not result.code and plan.code else ""
    lines.append(f"{word}: {len(proven)} of {count(total, 'host')} proven, {len(touched)} changed{rest}")
    return "\n".join(lines)


def taken_text(taken: Sequence[Taken]) -> str:
    """What became of every undo of one host."""
    lines = []
    for one in taken:
        word = "undone" if one.ok else "FAILED"
        said = f" ({clean(one.said)})" if one.said else ""
        lines.append(f"{word:<8} {clean(one.undo.host, 100)}: {clean(one.undo.say)}{said}")
    return "\n".join(lines)
