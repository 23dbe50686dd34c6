from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.smoke import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings


@check(severity=WARNING, area="smoke")
def smoke_budget_spent(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """The smoke run ends within its budget.

    ## Why it matters
    What was not reached is not known. Nothing was found to hang: the hosts were slower than the time that was
    given.

    ## What to do
    Give it more time (`--budget`), or less to do (`--layout`, `--steps`). If `import torch` takes most of it, the
    interpreter lies on a slow file system: the report says how long it took. On hosts where something else runs,
    end that first.

    ## Source
    The clock of the controller, from the first connection on.
    """
    yield from failure_findings(
        run,
        "the time was up {where}: {text}",
        "budget",
    )
