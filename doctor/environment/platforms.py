"""What a scheduler or a platform tells the processes of its jobs: the job, its hosts, which of them this one is. Pure.

Slurm: srun(1) and sbatch(1), "output environment variables", and what a real one set. ModelArts: "Managing
environment variables of a training container", tables 2 and 7 (``MA_NUM_HOSTS``, ``VC_TASK_INDEX``, ``VC_WORKER_NUM``,
``VC_WORKER_HOSTS``, which lists the hosts in order). MindCluster: "Ascend Operator environment variables": in a pod
``RANK`` is the number of the *host*, ``WORLD_SIZE`` counts NPUs, ``LOCAL_RANK`` is a list of them; for MindSpore
``MS_NODE_RANK``, ``MS_LOCAL_WORKER``. Volcano: the user guides of its job plugins *env* (``VC_TASK_INDEX``, a number
within one kind of task) and *svc* (``VC_<TASK>_HOSTS``, ``VC_<TASK>_NUM``; the pod's name is its host name). Kubeflow:
``PET_NNODES`` and ``PET_NODE_RANK``, from which torchrun takes its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.launchers import Reader
from doctor.environment.mounted_rank_table import Table

_POD = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MS_ROLE", "MS_WORKER_NUM", "MS_SCHED_HOST")


class Platform(msgspec.Struct, frozen=True):
    """A job of a platform, as it looks from one of its processes. -1: not told."""

    kind: str
    title: str
    """``Slurm``."""
    job: str = ""
    hosts: str = ""
    """As the platform writes them: a node set, or parted by commas."""
    source: str = ""
    """The variable that they are from."""
    node: int = -1
    nodes: int = -1
    each: bool = False
    """It starts one process on every host."""
    scheduler: bool = False
    """This one is MindSpore's scheduler."""
    not_ranks: tuple[str, ...] = ()
    """Variables that look like a rank's, and are the host's."""

    @property
    def words(self) -> str:
        return f"{self.title} job {self.job}" if self.job else self.title


def find_platform(environ: Mapping[str, str], table: Table | None) -> Platform | None:
    """The platform that this process runs on; the first that left its marks."""
    reader = Reader(environ)
    for find in _ALL:
        found = find(reader, table)
        if found:
            return found
    return None


def _slurm(reader: Reader, table: Table | None) -> Platform | None:
    job = reader.text("SLURM_JOB_ID")
    if not job:
        return None
    step, tasks = reader.text("SLURM_STEP_NODELIST"), reader.number("SLURM_STEP_NUM_TASKS", needed=False)
    # mpirun starts its daemons by a step of their own, which leaves its own host out.
    within = step and tasks > 1 and not ({"OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID"} & reader.environ.keys())
    source = "SLURM_STEP_NODELIST" if within else "SLURM_JOB_NODELIST"
    nodes = reader.first("SLURM_STEP_NUM_NODES" if within else "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
    return Platform(
        "slurm",
        "Slurm",
        printable(job, 40),
        reader.text(source),
        source,
        reader.number("SLURM_NODEID", needed=False),
        reader.number(nodes, least=1, needed=False),
    )


def _modelarts(reader: Reader, table: Table | None) -> Platform | None:
    if not ("MA_NUM_HOSTS" in reader.environ or "MA_VJ_NAME" in reader.environ):
        return None
    nodes = reader.number("MA_NUM_HOSTS", least=1, needed=False)
    return Platform(
        "modelarts",
        "ModelArts",
        printable(reader.text("MA_VJ_NAME"), 60),
        reader.text("VC_WORKER_HOSTS"),
        "VC_WORKER_HOSTS",
        reader.number(reader.first("VC_TASK_INDEX", "VK_TASK_INDEX"), needed=False) if nodes != 1 else 0,
        nodes,
        each=nodes != 1,
    )


def _mindcluster(reader: Reader, table: Table | None) -> Platform | None:
    torch = "," in reader.text("LOCAL_RANK")
    mindspore = "MS_LOCAL_WORKER" in reader.environ and "MS_NODE_RANK" in reader.environ
    mounted = table is not None and not table.variable
    if not (torch or mindspore or mounted or "MINDX_TASK_ID" in reader.environ):
        return None
    started = {"TORCHELASTIC_RUN_ID", "MS_NODE_ID", "RANK_ID"} & reader.environ.keys()
    pod = bool(torch or mindspore) and not started
    world = reader.number(reader.first("MS_WORKER_NUM" if mindspore else "WORLD_SIZE"), needed=False)
    each = reader.number("MS_LOCAL_WORKER" if mindspore else "LOCAL_WORLD_SIZE", needed=False)
    nodes = world // each if each > 0 and world > 0 and world % each == 0 else -1
    return Platform(
        "mindcluster",
        "MindCluster",
        printable(reader.text("MINDX_TASK_ID"), 60),
        node=reader.number("MS_NODE_RANK" if mindspore else "RANK", needed=False) if pod else -1,
        nodes=nodes,
        each=pod and nodes != 1,
        scheduler=pod and reader.text("MS_ROLE") == "MS_SCHED",
        not_ranks=_POD if pod else (),
    )


def _volcano(reader: Reader, table: Table | None) -> Platform | None:
    lists = {name: reader.text(name) for name in reader.environ if re.fullmatch(r"VC_[A-Z0-9_]+_HOSTS", name)}
    if "VC_TASK_INDEX" not in reader.environ and not lists:
        return None
    names = sorted(lists, key=lambda name: (name != "VC_MASTER_HOSTS", name))
    hosts = [host for name in names for host in lists[name].split(",") if host]
    own = reader.text("HOSTNAME")
    places = [place for place, host in enumerate(hosts) if own and host.partition(".")[0] == own.partition(".")[0]]
    alone = len(names) == 1
    node = places[0] if places else reader.number("VC_TASK_INDEX", needed=False) if alone else -1
    return Platform(
        "volcano",
        "Volcano",
        hosts=",".join(hosts),
        source=" and ".join(names),
        node=node,
        nodes=len(hosts) or -1,
        each=len(hosts) != 1,
    )


def _kubeflow(reader: Reader, table: Table | None) -> Platform | None:
    if not {"PET_NNODES", "PET_NODE_RANK"} <= reader.environ.keys():
        return None
    nodes = reader.number("PET_NNODES", least=1, needed=False)
    node = reader.number("PET_NODE_RANK", needed=False)
    own = () if "TORCHELASTIC_RUN_ID" in reader.environ or "LOCAL_RANK" in reader.environ else ("RANK", "WORLD_SIZE")
    return Platform("kubeflow", "Kubeflow", node=node, nodes=nodes, each=nodes != 1, not_ranks=own)


_ALL: tuple[Callable[[Reader, Table | None], Platform | None], ...] = (
    _slurm,
    _modelarts,
    _mindcluster,
    _volcano,
    _kubeflow,
)
