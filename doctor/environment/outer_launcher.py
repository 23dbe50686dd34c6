"""On how many hosts a line starts ranks, how often a launcher starts another one, and what each start gets. Pure."""

from __future__ import annotations

import math
import os
import re

from doctor.engine.addresses import means_own_host
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.hosts.nodeset import InventoryError, expand_nodeset
from doctor.job.job_script import Resources
from doctor.job.job_size import ONE_ON_EACH_HOST, STARTS_TASKS
from doctor.job.launch_line import LaunchCall, LaunchLine
from doctor.job.launch_line.call_parts import numbers_of, opens_no_store
from doctor.job.shell.arithmetic import numbers_in_tasks
from doctor.job.shell.word import Loop
from doctor.job.variables import RANK_NUMBERS

_OVER_ALL_HOSTS = {"openmpi", "hydra", "deepspeed", "horovodrun", "colossalai", "accelerate"}
"""Launchers that can start the ranks of other hosts, too: one start is the whole job."""
_ACCELERATE_OVER_HOSTS = {"pdsh", "openmpi", "mvapich", "mpich", "slurm"}
"""Values of ``--deepspeed_multinode_launcher`` with which it does; `DEEPSPEED_MULTINODE_LAUNCHERS` of Accelerate,
src/accelerate/utils/constants.py, without ``standard`` and ``nossh``."""
_OWN_HOST_ONLY = {"fork", "isolated"}
"""Ways of mpirun to start ranks that reach no other host: Hydra's ``-launcher``, Open MPI's ``plm``."""
_NUMBERS = ("node-rank", "machine-rank")
_MEETING = ("master-addr", "master-port", "rdzv-endpoint", "rdzv-id")
TASK_OPTIONS = {"ntasks", "ntasks-per-node"}
"""By which a line of srun itself says how many tasks there are."""


def most_nodes(line: LaunchLine) -> int | None:
    """Hosts of the job at most."""
    call = line.innermost
    return call.max_nodes if call and call.max_nodes is not None else line.nodes


def outer_nodes(line: LaunchLine) -> int | None:
    """Hosts of the launcher around the one that gives ranks their numbers."""
    return next((call.nodes for call in reversed(line.launchers[:-1]) if call.nodes is not None), None)


def same_rank_numbers(line: LaunchLine) -> dict[str, str]:
    """What the line, or the script before it, gives to all tasks alike; launchers of one host number ranks anew.

    Open MPI gives tasks on other hosts what ``-x`` names: mpirun(1), "Exported Environment Variables".
    """
    launcher = line.innermost.launcher if line.innermost else ""
    names: tuple[str, ...] = RANK_NUMBERS if launcher in ("srun", "hydra") else ()
    if line.innermost and launcher == "openmpi":
        names = tuple(name for name in RANK_NUMBERS if name in {*line.innermost.environ, *line.innermost.passed})
    return {name: printable(line.environ[name], 40) for name in names if line.environ.get(name)}


def same_node_rank(line: LaunchLine, tasks: int | None) -> int | None:
    """What the line says, or takes by default, of its host's number; the default where it runs on several hosts."""
    call = line.innermost
    if call is None or any(outer.standalone for outer in line.launchers[:-1]):
        return None
    outer = line.launchers[-2].launcher if len(line.launchers) > 1 else ""
    numbers = numbers_in_tasks(call.unresolved.get("node-rank", ""), outer, tasks or 0, line.nodes or 0)
    if len({*numbers}) == 1:
        return numbers[0]
    is_started_once = not tasks or tasks < 2 or any(name.startswith("PET_") for name in line.unresolved)
    return None if is_started_once and call.node_rank is None else call.fixed_node_rank


def outer_tasks(line: LaunchLine, requested: Resources) -> tuple[int | None, bool]:
    """How often srun, mpirun or pdsh starts the launcher that numbers the ranks, and whether directives say so.

    1: a script starts it on its own host alone, or by srun in a job of one host, which is not one of several that meet
    elsewhere. None where that is not known, and where a loop or a list of hosts starts it host by host, or by groups.
    """
    if tasks_here := _on_own_host(line, requested):
        return tasks_here
    outer = line.launchers[-2] if len(line.launchers) > 1 else None
    if outer and "set by a loop" in outer.unresolved.get("host", "") and line.is_repeated:
        return _in_loop(line, outer), False
    if outer is None or line.conditional:
        return None, False
    if outer.launcher != "srun":
        tasks = _count_of(outer.hosts) if outer.launcher == "ssh" else outer.ranks
        return (tasks, False) if tasks and tasks > 1 else (None, False)
    if {"nodes", *TASK_OPTIONS} & outer.unresolved.keys() or "options" in outer.unresolved:
        return None, False
    by_directive = not TASK_OPTIONS & outer.options.keys()
    nodes = outer.nodes or (requested.nodes if requested.nodes == requested.max_nodes else None)
    each = requested.ranks_per_node if by_directive else outer.ranks_per_node
    ranks = requested.ranks if by_directive else outer.ranks
    if each is None and ranks is None and "nodes" in outer.options:
        each, by_directive = 1, False
    tasks = ranks or (nodes * (each or 1) if nodes else None)
    around = [call.ranks or 1 for call in line.launchers[:-2] if call.launcher in STARTS_TASKS]
    if max(around, default=1) > 1:
        tasks, by_directive = (tasks or 1) * math.prod(around), False
    if {"nodelist", "relative"} & outer.options.keys() and (tasks or 0) <= (most_nodes(line) or 0):
        return None, False
    is_one = by_directive and ranks == 1 and (requested.nodes or 0) > 1  # srun: "can't run 1 processes on 2 nodes"
    return (tasks, by_directive) if tasks and (tasks > 1 or is_one) else (None, False)


def _on_own_host(line: LaunchLine, requested: Resources) -> tuple[int, bool] | None:
    """Of a launcher of one host that starts on that of the script alone; None where that is not known."""
    if line.innermost is None or line.innermost.launcher not in ONE_ON_EACH_HOST or line.conditional:
        return None
    is_of_one, meets = requested.nodes == requested.max_nodes == 1, _meets_within(line.innermost)
    outer = line.launchers[:-1]
    if not outer and line.is_alone and ((is_of_one and meets) or (requested.nodes or 0) > 1):
        return 1, False
    is_step = [call.launcher for call in outer] == ["srun"] and not {"het-group", "jobid"} & outer[0].options.keys()
    is_one_job = meets or ("array" not in requested.options and "node-rank" not in line.innermost.unresolved)
    return (1, True) if is_step and is_of_one and is_one_job else None


def _in_loop(line: LaunchLine, outer: LaunchCall) -> int | None:
    """The rounds of a loop over hosts, where they do not fit the hosts of the one job that it starts.

    A loop over the other hosts may give them a number; rank 0 is that of one host.
    """
    call, hosts, numbers = line.launchers[-1], most_nodes(line), _numbers(line)[1]
    names = re.findall(r"[A-Za-z_]\w*", outer.unresolved["host"].partition(",")[0])
    loops = [line.loops[name] for name in names if name in line.loops and _is_one_job(call)]
    starts_all = line.is_alone and len(line.loops) == 1 and numbers and numbers.least == 0
    rounds = loops[0].rounds if len(loops) == 1 else 0
    if rounds > (hosts or rounds) or (starts_all and 0 < rounds < (call.nodes or 0)):
        return rounds
    return hosts if call.node_rank == 0 else None


def _is_one_job(call: LaunchCall) -> bool:
    """Whether all rounds of the loops around it meet at one place."""
    return not any(" a loop in line" in call.unresolved.get(name, "") for name in _MEETING)


def _numbers(line: LaunchLine) -> tuple[str, Loop | None]:
    """The option by which a loop numbers the hosts of the job, and the numbers."""
    call = line.launchers[-1]
    name = next((name for name in _NUMBERS if " by a loop " in call.unresolved.get(name, "")), "")
    is_read = call.is_numbered_by_line and line.is_repeated and _is_one_job(call)
    return name, line.loops.get(call.option(name).strip("${}")) if is_read else None


def _numbers_beyond(line: LaunchLine, tasks: int | None) -> tuple[OptionProblem, ...]:
    """A loop gives a host a number that the job does not have. Of more ``tasks`` than hosts that is said instead."""
    hosts, (name, numbers) = most_nodes(line) or 0, _numbers(line) if line.launchers else ("", None)
    if not numbers or hosts < 2 or (tasks or 0) > hosts or numbers.least < 0 or numbers.largest < hosts:
        return ()
    return (OptionProblem(line.launchers[-1].command, f"--{name}", str(numbers.largest), numbers_of(hosts), "beyond"),)


def _meets_within(call: LaunchCall) -> bool:
    """At a host of the very job that the script is: the first of its allocation, or the one that it runs on."""
    address = call.unresolved.get("master-addr") or call.unresolved.get("rdzv-endpoint") or ""
    return re.search(r"\bSLURM_(?:JOB_)?NODELIST\b|\bSLURMD_NODENAME\b|\bhostname\b|\bHOSTNAME\b", address) is not None


def _hosts_not_given(line: LaunchLine, tasks: int | None) -> tuple[OptionProblem, ...]:
    """Torchrun for one host by default, started several times, and its starts are to meet at one address.

    Without an address, or at each host's own, they are jobs of one host each.
    """
    call = line.innermost
    if call is None or call.launcher != "torchrun" or call.standalone or (tasks or 0) < 2:
        return ()
    address = call.option("rdzv-endpoint") or call.option("master-addr")
    by_variable = any("PET_" in name for name in line.unresolved)
    is_stated = by_variable or {"nnodes", "options"} & {*call.options, *call.unresolved}
    if is_stated or not address or line.differing or means_own_host(address.rpartition(":")[0] or address):
        return ()
    reason = "as often as {0} starts it: without the option each start is a job of its own"
    reason = filled(reason, line.launchers[-2].command)
    return (OptionProblem(call.command, "--nnodes", str(tasks), reason, "wanted"),)


def _store_not_opened(line: LaunchLine, tasks: int | None) -> tuple[OptionProblem, ...]:
    """Torchrun with ``is_host=0`` on every host: no host opens the store of the c10d rendezvous."""
    call = line.innermost
    if call is None or call.launcher != "torchrun" or call.rdzv_backend != "c10d" or not opens_no_store(call):
        return ()
    if not (call.max_nodes and call.max_nodes <= max(tasks or 1, 1)):
        return ()
    expected = "is_host=1 on the host of the endpoint: of the hosts with this line none opens the store"
    return (OptionProblem(call.command, "--rdzv-conf", call.option("rdzv-conf"), expected),)


def misfits(line: LaunchLine, tasks: int | None) -> tuple[OptionProblem, ...]:
    """What of the line does not fit that it is started for ``tasks`` hosts, or in a loop."""
    return *_hosts_not_given(line, tasks), *_numbers_beyond(line, tasks), *_store_not_opened(line, tasks)


def starts_whole_job(line: LaunchLine) -> bool:
    """Whether each start of the launcher that numbers the ranks starts those of all hosts: a second one is too much.

    False where that is not known, as of a default hostfile; where it is for its own host, as DeepSpeed's with
    ``--no_ssh``; and of mpirun over SSH without hosts, which knows of no scheduler there.

    Sources: DeepSpeed, deepspeed/launcher/runner.py; mpirun(1), which takes the hosts of Slurm's allocation where it is
    given none; Accelerate, `prepare_deepspeed_cmd_env`.
    """
    call = line.innermost
    if call is None or call.launcher not in _OVER_ALL_HOSTS or len(line.launchers) < 2 or "options" in call.unresolved:
        return False
    if call.launcher == "accelerate":
        by_deepspeed = call.option("deepspeed-multinode-launcher") in _ACCELERATE_OVER_HOSTS
        return by_deepspeed and (call.nodes or 0) > 1
    if "no-ssh" in call.options or call.nodes == 1 or (call.hosts and all(map(means_own_host, call.hosts))):
        return False
    if (call.nodes or 0) > 1 or call.hosts or call.hostfile not in ("", os.devnull) or "hostfile" in call.unresolved:
        return True
    named = [value for name in ("launcher", "bootstrap", "mca") for value in call.options.get(name, ())]
    named += [line.environ.get(name, "") for name in ("OMPI_MCA_plm", "HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP")]
    ways = {word for value in named for word in value.split()}
    is_mpirun = call.launcher in ("openmpi", "hydra") and line.launchers[-2].launcher != "ssh"
    return is_mpirun and call.ranks != 1 and not ways & _OWN_HOST_ONLY


def _count_of(hosts: tuple[str, ...]) -> int | None:
    """How many hosts node sets name; None where that cannot be known."""
    try:
        return len(expand_nodeset(",".join(hosts), "the launch line"))
    except InventoryError:
        return None
