"""Why a process does not know all hosts of its job, by its environment. Pure.

A job whose hosts are not all known may be checked on this host alone, and is then never healthy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache

from doctor.engine.addresses import means_own_host
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.host_list import JobHosts
from doctor.environment.launcher import LaunchedRank
from doctor.environment.launchers import launchers, world_size_without_rank
from doctor.environment.scheduler import Allocation
from doctor.environment.schedulers import schedulers
from doctor.environment.variables import EnvironmentVariables
from doctor.job.job_size import VARIABLES as SIZE_VARIABLES
from doctor.job.job_size import has_local_size, least_hosts, stated_sizes
from doctor.job.launch_config import UNREAD_TASKS
from doctor.job.launch_line import LaunchLine
from doctor.job.shell.variables import is_assigned
from doctor.job.variables import JOB_WIDE, RANK_NUMBERS

LEADER_VARIABLES = ("MASTER_ADDR", "MS_SCHED_HOST")
"""Where the ranks of torch and of MindSpore meet."""
JAX_LEADER = "JAX_COORDINATOR_ADDRESS"
"""The same of JAX, with its port."""
_IN_A_POD = "KUBERNETES_SERVICE_HOST"
_COUNT_NAME = re.compile(
    r"(\w*?)(?:NUM_NODES|NNODES|NODE_COUNT|NUM_HOSTS|NPROCS|WORKER_NUM|TOTAL_WORKERS|REPLICA_COUNT|TRAINERS_NUM"
    r"|NODES?_NUM|HOSTS?_NUM|(?:HOST|WORKER|MACHINE|INSTANCE)_COUNT|NUM_(?:MACHINES|INSTANCES)|(?:MACHINE|INSTANCE)_NUM"
    r"|NODECOUNT|TOTAL_NODES)|(MEGASCALE_)NUM_SLICES|(NGC_)ARRAY_SIZE|(\w*?GANG_)SIZE"
    r"|(?:NUM_)?REPLICAS|POD_COUNT|NUM_PODS|N_NODES|GROUP_WORLD_SIZE"
)
"""How platforms name the number of a job's hosts, behind a prefix of theirs."""
_LIST_NAME = re.compile(
    r"([A-Z0-9]+_)\w*(?:HOSTNAMES|HOSTS|(?:NODE|HOST|PROCESSOR)_?LIST|(?:NODE|HOST|WORKER)_IPS)|(CCP_)NODES"
    r"|(NEURON_)PJRT_PROCESSES_NUM_DEVICES|NODES|MACHINES|PEERS"
)
"""How platforms name the list of them, behind a prefix of theirs."""
_NODES_OF_HPC_PACK = re.compile(r"[0-9]+((?: \S+ [0-9]+)+)", re.ASCII)
_ORDINAL = re.compile(r"[a-z].{0,250}-([0-9]{1,5}) ([0-9]{1,6})", re.ASCII)
"""The name of a pod of a StatefulSet, and the number of them."""
_LIKELY_COUNT_NAME = re.compile(r"([A-Z0-9]+_)\w*(?:(?<=_)NUM_WORKERS|(?<=CLUSTER_)SIZE|(?<=TRAIN_)WORKERS)")
"""Names that others than platforms use as well, as for the workers of a data loader."""
_INDEX_OF_JOB = re.compile(r"\w*(?:RANK|INDEX|PROCNO|(?:WORKER|NODE|HOST|TASK|JOB|STEP)_?ID)")
"""Beside such a name: a list of servers has a prefix and an ID, too (KAFKA_HOSTS, KAFKA_CLIENT_ID)."""
_FIRST_RANK_NAME = re.compile(r"\w*?(?:ROOT_COMM_ID|RANK_?0_(?:HOST|ADDR|ADDRESS|IP))")
"""How platforms name the host of rank 0, perhaps with its port, where all meet."""
_LONGEST_LIST = 4096
"""Characters of a value that are read."""
_TASK_NUMBERS = ("PMIX_RANK", "PMI_RANK", "ALPS_APP_PE")
"""Of a task of MPI, whose launcher need not state how many there are."""
_INDEX_NAME = re.compile(r"\w*(?:RANK|INDEX|PROCNO|ID)")
_HOST_RANKS = ("NODE_RANK", "HOST_RANK", "MACHINE_RANK", "PALS_NODEID", "NOMAD_ALLOC_INDEX")
"""Variables for this host's number in the job: above 0, there are other hosts."""
_NODE_INDEXES = frozenset(
    {*_HOST_RANKS, "NODE_INDEX", "NODE_ID", "HOST_INDEX", "HOST_ID", "MACHINE_ID", "RANK", "GROUP_RANK", "WORKER_RANK"}
    | {"POD_INDEX"}
)
"""Variables for this host's or this process's number in the job, where the number of hosts has no prefix."""

_PLACE_NAME = re.compile(
    r"(?:(?:NODE|HOST|MACHINE|ROLE|TASK|WORKER)_?(?:RANK|INDEX|ID)"
    r"|(?:MASTER|LEADER|HEAD)_(?:NODE_|POD_|WORKER_)?(?:ADDR|ADDRESS|IP|PORT|HOST))\Z",
    re.IGNORECASE,
)
"""How platforms and scripts name this host's number, and where all meet."""
_FAMILY = 3
"""Variables with one prefix in a platform's sample: others with this prefix are the platform's, too."""


@cache
def _given_names() -> tuple[frozenset[str], tuple[str, ...]]:
    """Those that a launcher or a platform sets, by the tables, and the prefixes of their other ones."""
    described, prefixes = set[str](), set[str]()
    for sample in [*(row.sample for row in launchers()), *(row.sample for row in schedulers())]:
        names = set(re.findall(r"^(\w+)=", sample, re.MULTILINE))
        described |= names
        families = Counter(name.partition("_")[0] for name in names if "_" in name)
        prefixes |= {f"{prefix}_" for prefix, count in families.items() if count >= _FAMILY}
    return frozenset((*JOB_WIDE, *RANK_NUMBERS, *SIZE_VARIABLES, *described)), tuple(sorted(prefixes))


def is_set_by_nothing(text: str) -> bool:
    """Whether a word of a launch line has a variable that neither the script nor a launcher or a platform sets.

    What a command prints, and the arguments of a script, are its caller's.

    >>> [is_set_by_nothing(text) for text in ("$NODE_RANK", "${MLP_WORKER_GPU}", "$NDOE_RANK", "$1", "$((GPUS * 2))")]
    [False, False, True, False, True]
    >>> is_set_by_nothing("$i, set by a loop in line 3")
    False
    """
    if re.search(r"\$\((?!\()|`", text) or is_assigned(text):
        return False
    names, prefixes = _given_names()
    return any(
        name not in names
        and not (_COUNT_NAME.fullmatch(name) or _PLACE_NAME.search(name))
        and not name.startswith(prefixes)
        for name in re.findall(r"(?:\$\{?|\$\(\([ ]*)([A-Za-z_]\w*)", text)
    )


def undecided_options(line: LaunchLine) -> dict[str, str]:
    """Options of the launchers whose value comes from a variable that nothing sets, and srun's that are not read."""
    options = {option: text for option, text in line.unread_options.items() if is_set_by_nothing(text)}
    tasks = next((text for name, text in line.unresolved.items() if name.split() == ["srun", "options"]), "")
    return options | ({UNREAD_TASKS: tasks} if tasks else {})


def unknown_hosts(
    variables: EnvironmentVariables,
    allocation: Allocation | None,
    launch: LaunchedRank | None,
    hosts: JobHosts,
    ranks_per_host: int = 0,
    devices: int = 0,
) -> str:
    """The reason in words, without its effect; empty where all are known, or where a list of hosts is refused.

    ``ranks_per_host``: as the user says; 0: not said. Then a job without a launcher, or of a script that names no
    leader, as with a rank table, that has more ranks than this host has ``devices`` is on other hosts as well, unless
    its ranks meet on loopback: then they share devices.
    """
    if hosts.error or hosts.is_of_user:
        return ""
    leader_is_assumed = launch is None or (launch.launcher.by_hand and launch.leader_address_source not in variables)
    each = devices if leader_is_assumed and not _meets_on_this_host(variables.environ) else 0
    least = _least_hosts(variables, allocation, launch, ranks_per_host or each)
    if hosts.hosts is None:
        why = _why_unlisted(variables, allocation, launch, hosts, least)
        return why or ("" if launch or allocation else _other_than_one_host(variables, ranks_per_host))
    if least > len(hosts.hosts):
        return filled("the job has {0} hosts or more, and {1} names {2}", least, hosts.source, len(hosts.hosts))
    return ""


def _why_unlisted(
    variables: EnvironmentVariables,
    allocation: Allocation | None,
    launch: LaunchedRank | None,
    hosts: JobHosts,
    least: int,
) -> str:
    """Where no source lists hosts. ``least``: the job has so many at least."""
    title = allocation.title if allocation else ""
    if hosts.problem and least != 1:
        return filled("{0}: the list of the job's hosts cannot be read: {1}", title or "launcher", hosts.problem)
    if least > 1:
        return filled("the names of the job's hosts are unknown ({0} or more)", least)
    if allocation is None and (launch is None or launch.launcher.by_hand) and (stated := _stated_hosts(variables)):
        return filled("the names of the job's hosts are unknown: {0}", stated)
    if launch is None and allocation is None:
        return _without_rank(variables)
    on_one_host = _is_on_one_host(variables, launch) if launch else bool(allocation and allocation.node_count == 1)
    author = title or (launch.launcher.title if launch else "")
    return "" if on_one_host else filled("the names of the job's hosts are unknown: {0} does not list them", author)


def _stated_hosts(variables: EnvironmentVariables) -> str:
    """The variable that states several hosts, beside this one's number, on a platform that is not described here.

    >>> _stated_hosts(EnvironmentVariables({"BEAKER_REPLICA_COUNT": "2", "BEAKER_REPLICA_RANK": "0"}))
    'BEAKER_REPLICA_COUNT=2'
    >>> _stated_hosts(EnvironmentVariables({"NODE_RANK": "2"})), _stated_hosts(EnvironmentVariables({"NODE_RANK": "0"}))
    ('NODE_RANK=2', '')
    """
    sizes = stated_sizes(variables.environ)
    meets_here = _IN_A_POD not in variables and _meets_on_this_host(variables.environ)
    for size in sizes:
        if size.kind == "tasks" and size.number > 1 and not (meets_here or has_local_size(variables.environ)):
            return f"{size.source}={size.number}"
    states_hosts = any(size.kind == "hosts" for size in sizes)
    names = [*variables.environ, *_ordinal_of_pod(variables)]
    for name, value in variables.environ.items():
        match = _several(name, value)
        if match is None:
            continue
        prefix = "".join(filter(None, match.groups()))
        is_certain = match.re is _COUNT_NAME or not (prefix or meets_here)
        others = [other for other in names if other != name]
        is_index = _INDEX_NAME.fullmatch if is_certain else _INDEX_OF_JOB.fullmatch
        if any(is_index(other) and other.startswith(prefix) for other in others if prefix):
            return f"{name}={printable(value)}"
        if is_certain and _NODE_INDEXES.intersection(others) and (not prefix or not states_hosts):
            return f"{name}={printable(value)}"
    if not sizes and (name := next((name for name in _TASK_NUMBERS if name in variables), "")):
        return f"{name}={printable(variables.environ[name])}"
    for name in filter(_FIRST_RANK_NAME.fullmatch, variables.environ):
        value = variables.text(name)
        host = value.rpartition(":")[0] if value.count(":") == 1 else value
        if host and not means_own_host(host) and host != variables.text("HOSTNAME"):
            return f"{name}={printable(value)}"
    ranks = ((name, variables.environ.get(name, "")) for name in _HOST_RANKS)
    return next((f"{name}={rank}" for name, rank in ranks if re.fullmatch(r"0{0,5}[1-9][0-9]{0,5}", rank)), "")


def _several(name: str, value: str) -> re.Match[str] | None:
    """The match of a variable's name where its value is a number of several hosts, or a list of them.

    >>> [_several(*pair) is not None for pair in (("NNODES", "2"), ("NNODES", "1"), ("TPU_WORKER_HOSTNAMES", "t0,t1"))]
    [True, False, True]
    """
    if re.fullmatch(r"[0-9]{1,6}", value, re.ASCII):
        return (_COUNT_NAME.fullmatch(name) or _LIKELY_COUNT_NAME.fullmatch(name)) if int(value) > 1 else None
    text = value[:_LONGEST_LIST]
    of_pack = _NODES_OF_HPC_PACK.fullmatch(text)
    hosts = set(of_pack[1].split()[::2] if of_pack else filter(None, re.split(r"[^A-Za-z0-9_.:-]+", text)))
    return _LIST_NAME.fullmatch(name) if len(hosts) > 1 or (name.startswith("NEURON_") and "," in text) else None


def _ordinal_of_pod(variables: EnvironmentVariables) -> list[str]:
    """POD_INDEX, where the name of the pod has a number as those of a StatefulSet with so many replicas."""
    name, replicas = variables.text("POD_NAME") or variables.text("HOSTNAME"), variables.text("REPLICAS")
    match = _ORDINAL.fullmatch(f"{name} {replicas}") if _IN_A_POD in variables else None
    return ["POD_INDEX"] if match and int(match[1]) < int(match[2]) else []


def _least_hosts(
    variables: EnvironmentVariables, allocation: Allocation | None, launch: LaunchedRank | None, ranks_per_host: int
) -> int:
    """The job has at least so many hosts; 0: nothing is known."""
    counts = [0]
    if allocation:
        counts += [allocation.node_count or 0, 0 if allocation.node_rank is None else allocation.node_rank + 1]
    if launch:
        counts.append(0 if launch.node_rank is None else launch.node_rank + 1)
        if launch.world_size and launch.local_world_size:
            counts.append(2 if launch.local_world_size < launch.world_size else 1)
    return max(*counts, least_hosts(variables.environ, ranks_per_host))


def _is_on_one_host(variables: EnvironmentVariables, launch: LaunchedRank) -> bool:
    """Whether all ranks are on this host: by their number, or because rank 0 is reached within the host alone."""
    if launch.world_size is not None and launch.world_size == launch.local_world_size:
        return True
    numbers = (launch.local_rank, launch.local_world_size, launch.device)
    is_whole_pod = _IN_A_POD in variables and numbers == (None, None, None)
    is_own_launch = (launch.launcher.by_hand or launch.leader_is_scheduler) and not is_whole_pod
    return is_own_launch and bool(launch.leader_addresses) and all(map(means_own_host, launch.leader_addresses))


def _without_rank(variables: EnvironmentVariables) -> str:
    """A script's own world size, and a leader that other hosts can reach."""
    size = world_size_without_rank(variables)
    for name in LEADER_VARIABLES:
        leader = variables.text(name).strip()
        if size > 1 and leader and not means_own_host(leader):
            return filled(
                "the names of the job's hosts are unknown: the world size is {0}, and {1} is not loopback", size, name
            )
    return ""


def _meets_on_this_host(environ: Mapping[str, str]) -> bool:
    """Whether the ranks meet on loopback, which no other host reaches.

    >>> _meets_on_this_host({"MASTER_ADDR": "localhost"}), _meets_on_this_host({"MASTER_ADDR": "10.0.0.1"})
    (True, False)
    """
    leaders = (environ.get(name, "").strip() for name in LEADER_VARIABLES)
    return any(map(means_own_host, leaders)) or means_own_host(environ.get(JAX_LEADER, "").rpartition(":")[0])


def _other_than_one_host(variables: EnvironmentVariables, ranks_per_host: int) -> str:
    """A world size that is not what one host starts: of a number that is smaller it is not known what it counts.

    The operator of PyTorchJobs gave WORLD_SIZE the number of pods, before it gave it that of all their ranks.
    """
    if _meets_on_this_host(variables.environ):
        return ""
    for size in stated_sizes(variables.environ):
        if size.kind == "ranks" and 1 < size.number != ranks_per_host > 0 and not has_local_size(variables.environ):
            return filled("the names of the job's hosts are unknown: {0}", f"{size.source}={size.number}")
    return ""
