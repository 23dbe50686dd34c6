from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.vendor_tests import GpudStates


@check(severity=WARNING, area="devices")
def gpud_unhealthy(states: GpudStates) -> Iterator[Finding]:
    """gpud finds every component of the host healthy.

    ## Why it matters
    gpud watches Xid errors, ECC, row remapping, NVLinks, fabric and disks over days, and keeps what it saw: an error
    that the kernel log no longer shows.

    ## What to do
    On {host}: `curl -ks https://localhost:15132/v1/states`, and what gpud proposes there. After the repair:
    `gpud set-healthy {component}`.

    ## Source
    gpud of Lepton AI (github.com/leptonai/gpud, docs/INTEGRATION.md): GET /v1/states on port 15132, asked where root
    listens there. States whose only proposed action is IGNORE_NO_ACTION_REQUIRED are left out. A state stays until it
    is set healthy: it may be older than the last repair.
    """
    for problem in states.problems:
        yield Finding(
            "gpud: {component} is {observed}: {reason}{actions}",
            component=problem.component,
            observed=problem.health,
            expected="Healthy",
            reason=problem.reason,
            actions=filled(" ({0})", ", ".join(problem.actions)) if problem.actions else "",
        )
