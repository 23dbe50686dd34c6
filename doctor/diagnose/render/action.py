"""The one thing to do after a diagnosis, for people and for a controller that starts jobs again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from doctor.diagnose.diagnosis import ONE_OF_TWO, Cause, Diagnosis, hosts_of
from doctor.diagnose.exception_actions import remedy_of_events
from doctor.diagnose.read.stamps import STILL_S
from doctor.diagnose.render.log_values import HOST_FORM, slurm_job
from doctor.diagnose.signature import Signature
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.quantities import span_text

ActionKind = Literal[
    "drain-host", "fix-host", "retry", "fix-program", "fix-settings", "give-memory", "examine", "ask", "none"
]
MAX_SHOWN = 4
_STARTS_AGAIN = ("drain-host", "fix-host", "retry", "fix-program")
"""Kinds after which the job runs again as it is. Slurm keeps the job script: a correction of it needs sbatch."""


class ActionDocument(msgspec.Struct, frozen=True):
    """``kind`` for programs, the same in words, and whom it is about."""

    kind: ActionKind
    text: str
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()


def action_of(diagnosis: Diagnosis, signatures: Mapping[str, Signature]) -> ActionDocument:
    """What to do about the first cause. For one that is only possible no host is drained and nothing is tried again."""
    if not diagnosis.causes:
        return _without_cause(diagnosis)
    cause = diagnosis.causes[0]
    hosts = hosts_of(cause.culprits)
    ranks = tuple(sorted({culprit.rank for culprit in cause.culprits if culprit.rank is not None}))
    kind: ActionKind = remedy_of_events(signatures[cause.signature], cause.evidence) or "examine"
    if cause.confidence == "possible" or cause.rule == ONE_OF_TWO:
        kind = "examine"
    is_from_outside = bool({"ends-all", "from-outside"} & {*signatures[cause.signature].traits})
    still = _stood_still(diagnosis, cause) if is_from_outside else 0.0
    if still:
        kind = "ask"
    text = _text(kind, cause, hosts) if not still else phrase(_STILL, span=localized_filled(span_text(still)))
    if (job := slurm_job(diagnosis)) and kind in _STARTS_AGAIN:
        text = phrase("{action}; `scontrol requeue {job}` starts it again", action=text, job=job["JOB"])
    return ActionDocument(kind, text, hosts, ranks)


def _stood_still(diagnosis: Diagnosis, cause: Cause) -> float:
    """Seconds without a line of any process before the job was ended, as far as times show that; else 0."""
    ended = [event for event in cause.evidence if event.time is not None and not event.inferred_time]
    spans = [float(event.values["still_s"]) for event in cause.evidence[:1] if "still_s" in event.values]
    beside = [file for index, file in enumerate(diagnosis.files) if index not in {event.file for event in ended}]
    times = [file.last_time for file in beside if file.last_time is not None and not (file.kernel or file.accounting)]
    if ended and times:
        spans.append(min(event.time or 0.0 for event in ended) - max(times))
    return min(spans) if spans and min(spans) >= STILL_S else 0.0


def _without_cause(diagnosis: Diagnosis) -> ActionDocument:
    if diagnosis.undecidable:
        needed = diagnosis.undecidable.needed
        if needed:
            return ActionDocument("ask", phrase("get {what}", what=localized_filled(needed[0])))
        return ActionDocument("ask", localized("keep the logs, and examine the hosts with doctor check"))
    if diagnosis.failed:
        return ActionDocument("ask", localized("get the logs of all ranks"))
    return ActionDocument("none", localized("nothing"))


def _text(kind: ActionKind, cause: Cause, hosts: tuple[str, ...]) -> str:
    host_list = ", ".join(hosts[:MAX_SHOWN])
    who = localized(", ").join(localized_filled(culprit.name) for culprit in cause.culprits[:MAX_SHOWN])
    if kind == "drain-host":
        if hosts and all(map(HOST_FORM.fullmatch, hosts)):
            return phrase(
                "drain host {hosts}, and start the job again on others. Slurm: `scontrol update nodename={slurm} "
                "state=drain reason=fault`; Kubernetes, its node: `kubectl drain <node> --ignore-daemonsets`",
                hosts=host_list,
                slurm=",".join(hosts),
            )
        if hosts:
            return phrase("drain host {hosts}, and start the job again on others", hosts=host_list)
        return phrase(
            "find the host of {who}, drain it, and start the job again on others", who=who or localized("the job")
        )
    if kind == "fix-host":
        if hosts:
            return phrase("correct host {hosts} as below, then start the job again", hosts=host_list)
        return localized(
            "correct the host that wrote these lines as below, then start the job again; the log does not name it"
        )
    if kind == "examine":
        if who:
            return phrase("examine {who} as below before the job runs again", who=who)
        return localized("examine the job as below before it runs again")
    return localized(_TEXTS[kind])


_STILL = (
    "find out why the job stood still: it had printed nothing for {span} when it was ended, and nothing shows why. "
    "Start it under `doctor watch -- COMMAND`, or run `doctor watch --attach` while it hangs: both show the "
    "stacks, and name the rank that the others wait for"
)
_TEXTS: Mapping[str, str] = {
    "retry": "start the job again: what ended it came from outside. If it had stood still, start it under "
    "`doctor watch -- COMMAND`, which names the rank that the others wait for",
    "fix-program": "correct the program as below, then start it again: unchanged it fails in the same way",
    "fix-settings": "correct the settings of the job as below, then start it again",
    "give-memory": "use less memory, or give the job more, then start it again",
}
