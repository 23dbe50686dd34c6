import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.job import LaunchConfig
from doctor.job.job_size import STARTS_TASKS
from doctor.job.shell.arithmetic import numbers_in_tasks

LARGEST, MOST_DEALT = 9_999_999, 65_536
COUNTED = {"RANK": "$SLURM_PROCID", "NODE_RANK": "$SLURM_NODEID", "GROUP_RANK": "$SLURM_NODEID"}
"""What counts the same under Slurm: tasks, hosts."""
_COUNTING = {
    "srun": "srun bash -c '{0} {1} $SLURM_NODEID <other options>'",
    "mpirun": "mpirun bash -c '{0} {1} $OMPI_COMM_WORLD_RANK <other options>'",
    "flux": "flux run bash -c '{0} {1} $FLUX_TASK_RANK <other options>'",
    "mpiexec": "mpiexec bash -c '{0} {1} $PMI_RANK <other options>'",
    "pdsh": 'pdsh -w <hosts> "{0} {1} %n <other options>"',
    "clush": 'clush -w <hosts> "{0} {1} %n <other options>"',
    "ssh": 'n=0; for host in <hosts>; do ssh $host "{0} {1} $n <other options>" & n=$((n + 1)); done; wait',
}
"""By what starts one launcher on each host: a line in which each host gets its own number."""
_OPTIONS = {"msrun": "--node_rank", "accelerate": "launch --machine_rank"}
_OF_TASKS = {
    command.partition(" ")[0]: {"RANK": f"${rank}", "LOCAL_RANK": f"${local}"}
    for command, rank, _, local in STARTS_TASKS.values()
}


@check(severity=ERROR, area="ranks")
def rank_numbers_wrong(launch: LaunchConfig) -> Iterator[Finding]:
    """No two hosts have the same rank, and every rank is below the number of ranks.

    ## Why it matters
    Two processes that take themselves for the same rank make the store wait for a rank that does not exist: all others
    hang until the timeout of minutes. A rank that is not below WORLD_SIZE ends at once.

    ## What to do
    {remedy}
    Or let the launcher count: `torchrun --rdzv-backend c10d`.

    ## Source
    PyTorch, environment variable initialization (RANK: from 0 to WORLD_SIZE - 1, another one for each process) and
    torchrun (`--node-rank`: default 0). Each host's own values are known where `doctor node` runs on every host in the
    job's environment, and `doctor merge` joins them; its own RANK where `doctor preflight` runs as the rank to be. What
    stands in a launch line is known where srun, mpirun, pdsh or a loop of ssh
    starts the line on several hosts: sbatch(1), the script runs on the first host, where SLURM_NODEID is 0.
    """
    by_host = launch.env_by_host
    starts = launch.outer_tasks if launch.nodes and launch.nodes > 1 else None
    if starts and starts > 1 and launch.node_rank is not None:
        yield _same_node_rank(launch, starts, launch.node_rank)
    yield from _computed(launch)
    yield from _of_lines(launch)
    yield from _same_on_a_host(launch)
    tasks = launch.world_size if launch.inner_launcher in _OF_TASKS else None
    if tasks and tasks > 1:
        yield from _same_in_tasks(launch, tasks)
    if not by_host:
        if starts or tasks or launch.problems_of("alike"):
            return
        if why := _other_hosts_unknown(launch):
            raise Unreadable(why)
        raise Skip("only `doctor node` sees each host's own environment")
    names = ("RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_WORLD_SIZE")
    if not any(name in environ for environ in by_host.values() for name in names):
        raise Skip("no host has a RANK, NODE_RANK or LOCAL_WORLD_SIZE in its environment")
    for variable in ("RANK", "NODE_RANK", "GROUP_RANK"):
        hosts_by_value: dict[int, list[str]] = defaultdict(list)
        for host, environ in by_host.items():
            number = _number(environ.get(variable, ""))
            if number is not None:
                hosts_by_value[number].append(host)
        for number, hosts in sorted(hosts_by_value.items()):
            if len(hosts) > 1:
                yield Finding(
                    "{variable} is {observed} on each of them",
                    hosts=hosts,
                    variable=variable,
                    observed=number,
                    expected="another number on every host",
                    remedy=filled(
                        "Give each host its own {0}, from the scheduler: `export {1}={2}` in the part of the job "
                        "script that runs on every host.",
                        variable,
                        variable,
                        COUNTED[variable],
                    ),
                )
    yield from _out_of_range(by_host)
    yield from _of_this_rank(by_host)
    yield from _wrong_total(by_host)


def _other_hosts_unknown(launch: LaunchConfig) -> str:
    """Why it is not known whether each host gets a number of its own; empty where nothing gives them one alike."""
    if launch.nodes == 1 or launch.node_rank is None:
        return ""
    if launch.unread_tasks and len(launch.launchers) > 1:
        return filled(
            "on how many hosts srun {0} starts {1} is not known, and each start has node rank {2}",
            launch.unread_tasks,
            launch.launchers[-1],
            launch.node_rank,
        )
    if launch.is_of_job_script and launch.launchers == ("torchrun",) and launch.nodes:
        return filled(
            "each host that runs this script gets node rank {0}, and the scripts of other hosts are not known; "
            "`--node-rank $NODE_RANK` with each host's own NODE_RANK needs no other script",
            launch.node_rank,
        )
    return ""


def _computed(launch: LaunchConfig) -> Iterator[Finding]:
    """Of arithmetic with the number of the host or the task, where one launcher starts on each host."""
    option = re.search(r"--(?:node|machine)[-_]rank[= ](\$\(\([^()]{1,80}\)\))", launch.launch_line)
    hosts = launch.nodes or 0
    if option is None or launch.outer_tasks != hosts:
        return
    source, counters = option[1], [f"SLURM_{name}" for name in ("NODEID", "PROCID")]
    numbers = numbers_in_tasks(source, launch.outer_launcher, hosts, hosts)
    if len({*numbers}) > 1 and sorted(numbers) != list(range(hosts)):
        wrong = next(place for place, number in enumerate(numbers) if number != place)
        counter = next((name for name in counters if name in source), "OMPI_COMM_WORLD_RANK")
        yield Finding(
            "{launcher} takes {source} for the number of its host: {observed} on host {number}",
            launcher=launch.launchers[-1],
            source=source,
            observed=numbers[wrong],
            number=wrong,
            expected=filled("each number from 0 to {0} once", len(numbers) - 1),
            remedy=filled("Write `${0}` in its place, which counts the hosts from 0.", counter),
        )


def _of_lines(launch: LaunchConfig) -> Iterator[Finding]:
    """Of lines of the job script that start a host each."""
    for _, _, repeated, lines, _ in launch.problems_of("alike"):
        if not launch.launchers:
            yield Finding(
                "lines {lines} start a rank each, and all of them get rank {observed}",
                lines=lines,
                observed=repeated,
                expected="another number for every rank",
                remedy="Give each rank of the job its own RANK, from 0 on.",
            )
            continue
        yield Finding(
            "lines {lines} start {launcher} on a host each, and all of these hosts get node rank {observed}",
            lines=lines,
            launcher=launch.launchers[-1],
            observed=repeated,
            expected="another number on every host",
            remedy="Count the hosts of the job from 0, in the lines of its script: the host of the address that all "
            "others are given has 0.",
        )


def _same_node_rank(launch: LaunchConfig, starts: int, node_rank: int) -> Finding:
    inner = launch.launchers[-1]
    option = _OPTIONS.get(inner, "--node-rank")
    return Finding(
        "{outer} starts {launcher} {number} times, and each of them gets node rank {observed}",
        variable="NODE_RANK",
        outer=launch.outer_launcher,
        launcher=inner,
        number=starts,
        observed=node_rank,
        expected="another number on every host",
        launch=launch.launch_line,
        remedy=filled(
            "Let each host have its own: `{0}`. Keep the single quotes: without them the job script's own shell writes "
            "the number of its own host, 0, for all hosts.",
            filled(_COUNTING.get(launch.outer_launcher, "{0} {1} <number of the host> <other options>"), inner, option),
        ),
    )


def _same_on_a_host(launch: LaunchConfig) -> Iterator[Finding]:
    """LOCAL_RANK by the number of the task: in order, or as srun deals tasks out to the hosts, by one or in groups."""
    source = launch.unresolved.get("LOCAL_RANK", "")
    counted = re.search(r"SLURM_PROCID\}?\s{0,9}([%/])\s{0,9}([1-9][0-9]{0,4})\b", source)
    asked = re.search(r"\s(?:-m|--distribution)[= ]?(\S{1,80})", launch.launch_line)
    distribution = asked[1] if asked else launch.env.get("SLURM_DISTRIBUTION", "block")
    dealt = re.match(r"(?:block|cyclic|plane=([1-9][0-9]{0,4}))(?![^:,])", distribution)
    ranks, hosts = launch.world_size or 0, launch.nodes or 1
    if not (counted and dealt and launch.inner_launcher == "srun" and 1 < hosts <= ranks <= MOST_DEALT):
        return
    group, number = int(dealt[1] or (-(-ranks // hosts) if dealt[0] == "block" else 1)), int(counted[2])
    divided = (divmod(task, number)[counted[1] == "%"] for task in range(ranks))
    given = {((task // group) % hosts, local) for task, local in enumerate(divided)}
    if len(given) < ranks and ranks == hosts * number:
        yield Finding(
            "LOCAL_RANK is {observed}, and with {distribution} srun gives tasks of one host the same",
            variable="LOCAL_RANK",
            observed=source,
            distribution=f"--distribution={dealt[0]}",
            expected="$SLURM_LOCALID, which counts the tasks of each host",
            launch=launch.launch_line,
            remedy="Let each task take the number that Slurm counts on its host: `export LOCAL_RANK=$SLURM_LOCALID`.",
        ).as_warning()


def _same_in_tasks(launch: LaunchConfig, tasks: int) -> Iterator[Finding]:
    """Of what the job script exports for all tasks; a program may count by itself, so it is a warning."""
    for variable, counted in _OF_TASKS[launch.inner_launcher].items():
        number = _number(launch.env.get(variable, ""))
        if re.search(rf"\b{variable}=[^\s=$]*\$", launch.launch_line):  # each task sets it
            continue
        if number is not None and (variable != "LOCAL_RANK" or launch.ranks_per_host not in (None, 1)):
            yield Finding(
                "{variable} is {observed} in each of the {number} tasks that {launcher} starts",
                variable=variable,
                launcher=launch.inner_launcher,
                number=tasks,
                observed=number,
                expected="another number in every task",
                launch=launch.launch_line,
                remedy=filled(
                    "Let each task set its own: `{0} bash -c 'export {1}={2}; exec <program>'`.",
                    launch.inner_launcher,
                    variable,
                    counted,
                ),
            ).as_warning()


def _out_of_range(by_host: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    for host, environ in by_host.items():
        text, size = environ.get("RANK", ""), _number(environ.get("WORLD_SIZE", ""))
        rank = _number(text)
        if text and size is not None and (rank is None or rank >= size):
            yield Finding(
                "RANK is {observed} of {size} ranks",
                hosts=(host,),
                variable="RANK",
                size=size,
                observed=text if rank is None else rank,
                expected=filled("from 0 to {0}", size - 1) if size else "a WORLD_SIZE of at least 1",
                remedy="RANK counts all processes of the job from 0, and WORLD_SIZE is their number: `export "
                "RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS` under Slurm, in each task.",
            )


_COUNTS_TASKS = {rank: size for _, rank, size, _ in STARTS_TASKS.values()}
"""By a launcher's number of a task, the number of its tasks."""


def _of_this_rank(by_host: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """Of one process, the rank to be: torch counts by RANK alone, and libraries read LOCAL_RANK by int()."""
    for host, environ in by_host.items():
        if (local := environ.get("LOCAL_RANK", "")) and _number(local) is None:
            yield Finding(
                "{variable} is {observed}; expected {expected}",
                hosts=(host,),
                variable="LOCAL_RANK",
                observed=local,
                expected="a number from 0",
                remedy="LOCAL_RANK counts the processes of a host from 0: `export LOCAL_RANK=$SLURM_LOCALID` under "
                "Slurm, `export LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK` under Open MPI, in each task.",
            )
        rank, size = _number(environ.get("RANK", "")), environ.get("WORLD_SIZE", "")
        for variable, of_tasks in _COUNTS_TASKS.items():
            task = _number(environ.get(variable, ""))
            if None not in (rank, task) and task != rank and environ.get(of_tasks) == size:
                yield Finding(
                    "RANK is {observed}, and {other} is {expected}: torch counts by RANK",
                    hosts=(host,),
                    variable="RANK",
                    other=variable,
                    observed=rank,
                    expected=task,
                    remedy=filled("Let each task set its own: `export RANK=${0}`, or `unset RANK`.", variable),
                ).as_warning()


def _wrong_total(by_host: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    """WORLD_SIZE is the sum of the hosts' LOCAL_WORLD_SIZE, where every host has both."""
    local = [_number(environ.get("LOCAL_WORLD_SIZE", "")) for environ in by_host.values()]
    sizes = {_number(environ.get("WORLD_SIZE", "")) for environ in by_host.values()}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    if size is None or None in local:
        return
    total = sum(number for number in local if number is not None)
    if total != size:
        yield Finding(
            "WORLD_SIZE is {observed}, and the hosts' LOCAL_WORLD_SIZE are {expected} in all",
            variable="WORLD_SIZE",
            observed=size,
            expected=total,
            remedy=filled(
                "Set `export WORLD_SIZE={0}` on all hosts if {1} processes are meant, or correct the number "
                "of processes for each host (LOCAL_WORLD_SIZE, `--nproc-per-node`).",
                total,
                total,
            ),
        )


def _number(text: str) -> int | None:
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else -1
    return number if 0 <= number <= LARGEST else None
