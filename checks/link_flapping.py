from collections.abc import Iterator
from datetime import timedelta

from doctor import WARNING, Finding, check
from doctor.facts.hccn.link_state import LinkHistory

WINDOW = timedelta(hours=24)
AHEAD = timedelta(minutes=10)
"""Changes further in the future are of a clock that was put back since: their age is not known."""
MAX_CHANGES = 4
"""Changes in the window that are still taken for calm: a restart and a cable pulled once make as many."""


@check(severity=WARNING, area="links")
def link_flapping(history: LinkHistory) -> Iterator[Finding]:
    """No NPU's link went up and down repeatedly in the last 24 hours.

    ## Why it matters
    Each gap costs the transfers on it their retries; a longer one ends the job with an error CQE (EI0013), hours into
    it. A flapping link is about to fail: a dirty or loose module, a bad fibre, a failing switch port.

    ## What to do
    On {host} `hccn_tool -i {npu} -link_stat -g` shows the times, `hccn_tool -i {npu} -optical -g` the module. Clean or
    reseat it, then the fibre, then the switch port.

    ## Source
    `hccn_tool -link_stat -g`, judged by the NPU's own clock. HCCL's fault guide looks there for error CQEs.
    """
    for npu, record in history.by_npu.items():
        recent = [when for when, _ in record.changes if -AHEAD < record.device_time - when < WINDOW]
        if len(recent) > MAX_CHANGES:
            yield Finding(
                "the link of NPU {npu} changed {observed} times in 24 hours, last at {last}; "
                "expected at most {expected}",
                npu=npu,
                last=max(recent).isoformat(sep=" "),
                observed=len(recent),
                expected=MAX_CHANGES,
            )
