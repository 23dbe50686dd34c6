from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
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
    `dmesg -T` once it is back. If it answers: its network was interrupted; check its switch port.

    ## Source
    The agent of each host sends a message five times a second over the connection that it was started with. After 5 s
    without one the other hosts try to connect to the host. It is reported when the others wait for its ranks and none
    of them gets an answer; after 60 s, when its kernel answers and its ranks still complete nothing, as all of it may
    be stopped and go on; and at once when its agent has ended. Silence alone is not enough: while collectives with its
    ranks are completed the run goes on, and smoke-host-unobserved reports a connection that carries nothing. This
    verdict can be wrong where the controller's connection and the host's training network fail at the same moment for
    more than 5 s and come back.
    """
    yield from failure_findings(
        run,
        "{who} stopped reporting {where}: {text}",
        "silent",
    )
