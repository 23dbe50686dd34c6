import re
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import (
    NotDecided,
    NotGiven,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    apply_rules,
    correction,
)

_GLOBAL = 'rank=int(__import__("os").environ["RANK"])'


@check(severity=ERROR, area="training")
def launch_rank_is_local(training: TrainingLaunch) -> Iterator[Finding]:
    """On several hosts, init_process_group gets the global rank, not the local one.

    ## Why it matters
    The local rank starts at 0 on every host. With it as the rank, two processes are rank 0, others are missing, and
    all wait for the rendezvous until it times out. On one host both are the same, and it goes unnoticed.

    ## What to do
    {edit} At {where}: leave rank and world_size out, so that RANK and WORLD_SIZE of the launcher count, or pass
    `int(os.environ["RANK"])`.

    ## Source
    PyTorch, init_process_group, and torchrun, environment variables
    (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables).
    """
    yield from apply_rules(training, script_rules=(_global_rank,))


def _global_rank(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = script.all("local_rank_as_rank")
    if not marks:
        if script.has("init"):
            return
        raise NotGiven("init")
    nodes = job.launch.get("nodes")
    if nodes is None:
        raise NotGiven("nodes")
    if not isinstance(nodes.value, int):
        raise NotDecided(filled("{0}, and {1} passes the local rank", nodes, marks[0].where))
    if nodes.value > 1:
        yield Finding(
            "init_process_group at {where} gets the local rank on {nodes} hosts",
            where=marks[0].where,
            nodes=nodes.value,
            observed=f"rank={marks[0].text}",
            expected="the global rank, RANK",
            edit=correction(marks[0].where, re.sub(r"[^\w =,-]", ".", f"rank={marks[0].text}"), _GLOBAL),
        )
