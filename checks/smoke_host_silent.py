from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings


@check(severity=ERROR, area="smoke")
def smoke_host_silent(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Every host keeps reporting throughout the run.

    ## Why it matters
    A host that stops reporting has crashed, has lost its network, or is so busy that nothing runs on it. Its ranks
    never come back, and all the others wait.

    ## What to do
    Check its console or its management controller (`ipmitool power status`), then `last -x`, `journalctl -b -1 -e` and
    `dmesg -T` once it is back. If it answers: its network or SSH was interrupted; check its switch port.

    ## Source
    The agent of each host sends a message five times a second over the connection that it was started with; one second
    without a message, beyond the controller's own delay, counts as silence.
    """
    yield from failure_findings(
        run,
        "{who} stopped reporting {where}: {text}",
        "silent",
    )
