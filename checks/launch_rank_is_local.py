import re
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.job_size import STARTS_TASKS
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
_NUMBERED = "{0} bash -c 'RANK=${1} WORLD_SIZE=${2} LOCAL_RANK=${3} exec <program>'"
"""A line in which each process has the numbers that torch reads."""


@check(severity=ERROR, area="training")
def launch_rank_is_local(training: TrainingLaunch) -> Iterator[Finding]:
    """init_process_group gets the global rank of its process, and not the local one.

    ## Why it matters
    A process without a rank ends at once: srun and mpirun set neither RANK nor WORLD_SIZE. With the local rank as the
    rank, two processes are rank 0, others are missing, and all wait for the rendezvous until it times out. On one host
    both are the same, and it goes unnoticed.

    ## What to do
    {edit} {remedy}

    ## Source
    PyTorch, init_process_group, and torchrun, environment variables
    (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables); torch/distributed/rendezvous.py,
    `_env_rendezvous_handler`; srun(1) and mpirun(1), output environment variables.
    """
    yield from apply_rules(training, script_rules=(_global_rank, _given_rank))


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
            remedy=filled(
                "At {0}: leave rank and world_size out, so that RANK and WORLD_SIZE of the launcher count, or pass "
                '`int(os.environ["RANK"])`.',
                marks[0].where,
            ),
        )


def _given_rank(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks, launcher = script.all("rank_by_environment"), job.launch.get("unnumbered")
    ranks = job.launch.get("world_size")
    if not marks or launcher is None or ranks is None or not isinstance(ranks.value, int) or ranks.value < 2:
        raise NotGiven("unnumbered")
    if script.opaque or script.has("own_ranks"):
        raise NotGiven("rank")  # the program may set RANK
    if launcher.value is None:
        raise NotDecided(str(launcher))
    numbers = STARTS_TASKS[str(launcher.value)]
    yield Finding(
        "init_process_group at {where} expects RANK, and {launcher} does not set it",
        where=marks[0].where,
        launcher=numbers[0],
        observed="no rank=, and no RANK",
        expected="RANK and WORLD_SIZE in the environment of each process",
        edit="",
        remedy=filled(
            "Give each process its numbers: `{0}`. Or start torchrun once on each host, which sets them.",
            filled(_NUMBERED, *numbers),
        ),
    )
