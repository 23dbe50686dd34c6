from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import HALTED, HELD_BACK, NO_ROOM, failure_findings


@check(severity=WARNING, area="smoke")
def smoke_budget_spent(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """The smoke run ends within its budget.

    ## Why it matters
    The stages that were not reached are unknown. No fault was found. The run needed more time than its budget; or ranks
    gave up waiting for others that had not joined yet or got hardly any CPU time.

    ## What to do
    {remedy}

    If something else runs on the hosts, end it first. Give the smoke run more time, `doctor smoke {all_hosts} --budget
    600`, or less work, `doctor smoke {all_hosts} --steps 2`; in a job of your own, `timeout=` of `init_process_group`
    is the time. If `import torch` takes most of it, the interpreter is on a slow file system: the report shows how long
    it took.

    ## Source
    The clock of the controller, from the first connection on. Ranks that a CPU quota of their control group held back
    in most of its periods (`cpu.stat`) are named, and hosts whose queueing discipline holds back what they send, as in
    `smoke-network-silent`; otherwise those behind the others, or none where all are. This
    verdict can be wrong about ranks whose quota is set outside of what their host shows them (a container).
    """
    yield from failure_findings(
        run,
        "the run did not end in time {where}: {text}",
        "budget",
        remedies=(NO_ROOM, HELD_BACK, HALTED),
    )
