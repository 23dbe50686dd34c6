from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings, own_program

WATCHED = (
    "A lock held while workers were forked is never released: in the program, "
    "`DataLoader(..., multiprocessing_context='spawn')`. The DataLoader's own timeout is 0, which means none: "
    "`DataLoader(..., timeout=600)` ends the wait with an error that names the loader."
)


@check(severity=ERROR, area="smoke")
def smoke_input_stalled(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Every rank gets its data in the usual time.

    ## Why it matters
    A rank whose data loader stalls never enters the next collective, and looks like a network problem from everywhere
    else.

    ## What to do
    On {host}, when it hangs again: `df -h /dev/shm` (loader workers pass their tensors through it),
    `for p in $(pgrep python); do echo $p $(cat /proc/$p/wchan); done` (what the workers sleep in), and `df -h` of the
    storage that they read. The rank waits for its loader in {frame}.

    {look}

    ## Source
    As for blocked ranks, where the rank itself reports that it waits for input.
    """
    yield from failure_findings(
        run,
        "{who} waited for input data {where}: {state}",
        "input",
        look=WATCHED if run.watched else own_program(run),
    )
