from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.job import LaunchConfig, RankTable
from doctor.job.job_script.carriers import is_carrier
from doctor.job.job_size import StatedSize, contradictions

_DERIVE = (
    "Derive one number from the other, in {0} and {1}: under Slurm `export WORLD_SIZE=$SLURM_NTASKS`, with Open MPI "
    "`export WORLD_SIZE=$OMPI_COMM_WORLD_SIZE`, and do not keep a number in the script."
)

_ONCE = (
    "Start {1} once on each of its hosts: under Slurm `#SBATCH --nodes={2} --ntasks-per-node=1`, with Open MPI `mpirun "
    "-np {2} --map-by ppr:1:node {1} <options>`; or correct the number of hosts in the line of {1}."
)
_COUNT = "Give {0} as many hosts, its replicas or nodes, as the line of {1} says, or correct that line."


@check(severity=ERROR, area="ranks")
def launch_sizes_contradict(launch: LaunchConfig, table: RankTable | None) -> Iterator[Finding]:
    """Everything that states the number of the job's ranks or hosts states the same.

    ## Why it matters
    The store waits for as many ranks as WORLD_SIZE says. Where the scheduler or mpirun starts another number, the job
    waits until its timeout, or the ranks that are too many end at once.

    ## What to do
    {remedy}

    ## Source
    PyTorch, torch.distributed, environment variable initialization (WORLD_SIZE); MindSpore, MS_WORKER_NUM; HCCL,
    RANK_SIZE; sbatch(1) (a batch script runs on the first host) and srun(1), output environment variables; mpirun(1) of
    Open MPI; torchrun (NNODES, PET_NNODES, LOCAL_WORLD_SIZE). A task of srun or mpirun may start several ranks:
    WORLD_SIZE is a multiple of the tasks then. It is a warning where the other number is that of an allocation: a step
    may be a part of it. torchrun, msrun, accelerate and deepspeed set these variables themselves: with them in the
    launch line WORLD_SIZE counts no more. Under srun, mpirun and pdsh, one torchrun starts on each host: `--nnodes` is
    the number of tasks. deepspeed, mpirun, horovodrun and colossalai start the ranks of all hosts themselves: one start
    is the whole job (DeepSpeed, deepspeed/launcher/runner.py). Where directives of the job script say how many those
    are, it is a warning: options of sbatch go before them.
    """
    sizes = launch.stated_sizes
    least, most = launch.nodes or 0, launch.max_nodes or 0
    repeated = launch.starts_whole_job and (launch.outer_tasks or 0) > 1
    is_outside = repeated or (bool(launch.outer_tasks) and least > 1)
    if repeated:
        yield _of_repeated_job(launch)
    elif is_outside:
        yield from _of_outer_launcher(launch, least, most)
    if table is not None and table.ranks:
        sizes.append(StatedSize("the rank table", "hosts", len(table.servers)))
    if len(sizes) < 2 and not is_outside:
        raise Skip("no two sources state the size of the job")
    for pair in contradictions(sizes):
        yield Finding(
            "{first} is {observed}, and {second} is {number}; expected {expected}",
            first=pair.first.source,
            second=pair.second.source,
            observed=pair.first.number,
            number=pair.second.number,
            expected=pair.expected,
            remedy=filled(_DERIVE, pair.first.source, pair.second.source),
        ).as_warning(not pair.is_certain)


def _of_repeated_job(launch: LaunchConfig) -> Finding:
    """The launcher that starts the ranks of all hosts is started several times."""
    return Finding(
        "{first} starts {second} {number} times, and each {second} starts the ranks of all hosts",
        first=launch.outer_launcher,
        second=launch.inner_launcher,
        number=launch.outer_tasks,
        expected="one start for all hosts",
        remedy=filled(
            "Start {0} once: in the job script, without {1} before it. On each host start what is for one host alone: "
            "the program itself, torchrun, or `deepspeed --no_ssh` with `--node_rank` of that host.",
            launch.inner_launcher,
            launch.outer_launcher,
        ),
    ).as_warning(launch.outer_by_directive and (launch.nodes or 0) < 2)


def _of_outer_launcher(launch: LaunchConfig, least: int, most: int) -> Iterator[Finding]:
    """The launcher that numbers the ranks is started more or less often than it has hosts."""
    if launch.outer_tasks == 1:
        yield Finding(
            "the job script starts {second} on its own host alone, and {second} is for {observed} hosts",
            second=launch.launchers[-1],
            observed=least,
            expected="one on each host",
            remedy=filled(
                "A job script runs on the first of its hosts only. Start {1} on each: `srun --nodes={0} "
                "--ntasks-per-node=1 {1} <options>` under Slurm, else `mpirun -np {0} --map-by ppr:1:node {1} "
                "<options>`.",
                least,
                launch.launchers[-1],
            ),
        ).as_warning(launch.outer_by_directive)
    elif not least <= (launch.outer_tasks or 0) <= most:
        yield Finding(
            "{first} starts {second} {number} times, and {second} is for {observed} hosts",
            first=launch.outer_launcher,
            second=launch.launchers[-1],
            number=launch.outer_tasks,
            observed=least,
            expected="one on each host",
            remedy=filled(
                _COUNT if is_carrier(launch.outer_launcher) else _ONCE,
                launch.outer_launcher,
                launch.launchers[-1],
                least,
            ),
        ).as_warning(launch.outer_by_directive)
