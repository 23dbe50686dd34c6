"""Rule "named by watch": what the line of progress of doctor watch, which saw the ranks live, names at its end."""

from __future__ import annotations

import re

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Confidence, Culprit, culprit_of_rank, sorted_culprits
from doctor.diagnose.events import Event
from doctor.diagnose.rules.named import rank_list
from doctor.engine.texts import filled

SIGNATURE = "verdict-of-watch"
_WHO = re.compile(
    r": (one of )?ranks? (\d[\d, -]{0,400}?)( 之一)?(?: on ([\w.-]{1,200}(?:, [\w.-]{1,200}){0,20}))?(?=[;；]|$)"
)
_LIKELY = re.compile("^(?:likely |可能：)")


def named_by_watch(case: Case) -> list[Cause]:
    """The last verdict of each log. Of two ranks that end, an earlier line may name the one that was ended."""
    lines = {event.file: event for event in sorted(case.events_of(SIGNATURE), key=lambda item: item.line)}
    causes = {event.values["verdict"]: _cause(case, event) for event in lines.values()}
    return list(causes.values())


def tells_no_reason(cause: Cause) -> bool:
    """That a rank died, without why: what the logs say of it tells more."""
    return cause.evidence[0].values["check"] == "smoke-rank-died"


def _cause(case: Case, event: Event) -> Cause:
    verdict = event.values["verdict"]
    text = _LIKELY.sub("", verdict)
    match = _WHO.search(text)
    hosts = match[4].split(", ") if match and match[4] else []
    host = hosts[0] if len(hosts) == 1 else ""
    ranks = rank_list(match[2]) if match else []
    culprits = [culprit_of_rank(case, rank, host) for rank in ranks] or [Culprit(host=name) for name in hosts]
    confidence: Confidence = (
        "possible" if match and (match[1] or match[3]) else "likely" if text != verdict else "certain"
    )
    summary = filled("doctor watch names {0}", text)
    return Cause(SIGNATURE, "named by watch", confidence, sorted_culprits(culprits), summary, (event,))
