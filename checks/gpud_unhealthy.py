from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.vendor_tests import GpudStates

REMEDIES = {
    "HARDWARE_INSPECTION": "Take the host out of the job, and have its hardware inspected: no command repairs it.",
    "REBOOT_SYSTEM": "Take the host out of the job, then `reboot` it.",
    "CHECK_USER_APP_AND_GPU": (
        "The program of the job may have caused it: look in its log at that time. Where it happens with other programs "
        "too, the GPU is at fault."
    ),
}
"""What gpud's proposals mean, the gravest first (gpud, api/v1/types.go, RepairActionType)."""
REPAIRS = frozenset({"HARDWARE_INSPECTION", "REBOOT_SYSTEM"})
NOTHING_PROPOSED = "gpud proposes nothing for it: look at what it saw."


@check(severity=ERROR, area="devices")
def gpud_unhealthy(states: GpudStates) -> Iterator[Finding]:
    """gpud finds every component of the host healthy.

    ## Why it matters
    gpud watches Xid errors, ECC, row remapping, NVLinks, fabric and disks over days, and keeps what it saw: an error
    that the kernel log no longer shows.

    ## What to do
    {remedy} {host} leaves the jobs of Slurm by `scontrol update NodeName={host} State=DRAIN Reason=gpu`. There `curl
    -ks https://localhost:15132/v1/states` shows what gpud saw. After the repair: `gpud set-healthy {component}`.

    ## Source
    gpud of Lepton AI (github.com/leptonai/gpud, docs/INTEGRATION.md): GET /v1/states on port 15132, asked where root
    listens there. States whose only proposed action is IGNORE_NO_ACTION_REQUIRED are left out. A state stays until it
    is set healthy: it may be older than the last repair. Where gpud proposes a repair (HARDWARE_INSPECTION,
    REBOOT_SYSTEM) of what it calls Unhealthy, this is an error, else a warning.
    """
    for problem in states.problems:
        yield Finding(
            "gpud: {component} is {observed}: {reason}{actions}",
            component=problem.component,
            observed=problem.health,
            expected="Healthy",
            reason=problem.reason,
            actions=filled(" ({0})", ", ".join(problem.actions)) if problem.actions else "",
            remedy=next((REMEDIES[action] for action in REMEDIES if action in problem.actions), NOTHING_PROPOSED),
        ).as_warning(problem.health != "Unhealthy" or REPAIRS.isdisjoint(problem.actions))
