"""The place of this process in a gang: pods of one job, each with a name that the others know. Pure.

The pods are numbered by index, and index 0 leads. Where they come from, in this order:

- hosts that the user, the scheduler or the platform lists (Volcano's ``VC_*_HOSTS``, TF_CONFIG, a rank table, a
  hostfile): this process is the one with its own host name, else the one with its number.
- a LeaderWorkerSet (lws.sigs.k8s.io, "Labels, Annotations and Environment Variables"): LWS_LEADER_ADDRESS is the
  leader's name; the pod of worker i is named ``LEADER-i``.
- a PyTorchJob (kubeflow/training-operator, pkg/controller.v1/pytorch/envvar.go): pods ``NAME-master-0`` and
  ``NAME-worker-N``, each with a service of its own name; worker N has rank N+1.
- an AscendJob (MindCluster, ascend-operator/pkg/controllers/v1/pod.go, service.go, env.go): the same names, with
  ``chief`` for TensorFlow and ``scheduler`` for MindSpore, and the same ranks where that first pod has NPUs. It alone
  has a service, whose address leads to the ports that its container declares; the others have no names.
- a RayCluster (KubeRay, ray-operator/controllers/ray/common/pod.go, service.go): the headless service FQ_RAY_IP leads
  to the head; the workers ``NAME-GROUP-worker-x7k2p`` have neither numbers nor names, and the head numbers them.
- pods on the network of their nodes, which have the nodes' names, too (kubernetes/kubernetes, pkg/kubelet/
  kubelet_pods.go, managedHostsHeaderWithHostNetwork; AscendJob: env.go, HostNetwork): a PyTorchJob's, by rank and
  MASTER_ADDR; an AscendJob's, by rank and the address of the first pod's service. Others need a list.
- a host name that ends with a number: a StatefulSet (kubernetes.io, "StatefulSets", section "Stable Network ID":
  ``NAME-ORDINAL.SERVICE``), an Indexed Job (kubernetes.io, "Jobs", section "Completion mode": host names
  ``JOB-INDEX``, with ``subdomain`` in the pod's template), and the jobs that a JobSet makes
  (``JOBSET-REPLICATEDJOB-JOBINDEX-PODINDEX``).

The kubelet writes the pod's name with its subdomain into /etc/hosts, before the short one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext

MAX_SIZE = 10_000
UNNUMBERED = -1
"""The index of a pod that has none by itself."""
_ORDINAL = re.compile(r"(.*[^-])-(0|[1-9][0-9]{0,5})\Z", re.ASCII)
_ROLE_POD = re.compile(r"(.+)-(master|chief|scheduler|worker)-(0|[1-9][0-9]{0,5})\Z", re.ASCII)
_RAY_HEAD = re.compile(r".+-head(-[a-z0-9]{5})?\Z", re.ASCII)
_INDEX = "JOB_COMPLETION_INDEX"
_HEAD_ON_NODE = "# Kubernetes-managed hosts file (host network)."
_FIRST_PODS = {"MS_SCHED_HOST": "scheduler", "CM_CHIEF_IP": "chief", "": "master"}
"""By a variable of all pods of the job: what its first one is called, where it is no worker."""
_OF_ROLES = {"kubeflow": "the names of a PyTorchJob's pods", "mindcluster": "the names of an AscendJob's pods"}


class GangPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where this process stands."""

    index: int
    hosts: tuple[str, ...]
    """Their names in the report, by index."""
    names: tuple[str, ...]
    """By which they look each other up; empty for one that has none."""
    is_named: bool = True
    """Whether ``hosts`` are names; else words in the place of the others, until these have come."""
    address: str = ""
    """Of index 0, where no name leads there."""
    job: str = ""
    """What the gang is known by, where index 0 has another address for itself."""
    source: str
    """In words: ``4 pods of a gang, by JOB_COMPLETION_INDEX``."""

    @property
    def identity(self) -> str:
        """The same in all pods of the gang, and another one in other gangs."""
        return "\0".join((self.job or self.leader, *self.names[1:]))

    @property
    def leader(self) -> str:
        """What leads to index 0."""
        return self.address or self.names[0] or self.hosts[0]


class PodDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of this process by itself."""

    environ: Mapping[str, str]
    host_name: str
    hosts_file: str = ""
    """Of /etc/hosts."""
    size: int = 0
    """As the user gives it; 0: not."""


def find_place(pod: PodDescription, context: JobContext, listed: Sequence[str], source: str) -> GangPlace:
    """``listed``: the hosts that a source names, if any. Raises: InputError, where the place cannot be known."""
    if context.is_scheduler_process:
        raise InputError("--gang: this pod is a scheduler without accelerators; expected --gang in the workers alone")
    if listed:
        return _of_list(pod, context, listed, source)
    if pod.environ.get("LWS_LEADER_ADDRESS"):
        return _of_leader_worker_set(pod, context)
    name = _name_by_rank(pod, context) or pod.host_name
    is_on_node = pod.hosts_file.startswith(_HEAD_ON_NODE) or pod.environ.get("HostNetwork") == "true"
    if name == pod.host_name and is_on_node:
        return _of_nodes(pod, context)
    if pod.environ.get("FQ_RAY_IP"):
        return _of_ray_cluster(pod, context)
    match = _ROLE_POD.match(name)
    if match and context.scheduler in _OF_ROLES:
        return _of_roles(pod, context, match[1], match[2], int(match[3]))
    return _of_ordinal(pod, context)


def _name_by_rank(pod: PodDescription, context: JobContext) -> str:
    """Of a PyTorchJob's pod, for any host name; empty where its variables do not have it."""
    master, rank = _ROLE_POD.match(pod.environ.get("MASTER_ADDR", "")), context.node_rank
    if master is None or master[2] != "master" or rank is None or context.scheduler != "kubeflow":
        return ""
    return f"{master[1]}-worker-{rank - 1}" if rank else master[0]


def _of_list(pod: PodDescription, context: JobContext, listed: Sequence[str], source: str) -> GangPlace:
    label, addresses = pod.host_name.partition(".")[0], [fields[0] for fields in _own_lines(pod)]
    places = [number for number, name in enumerate(listed) if name in (pod.host_name, *addresses)]
    places = places or [number for number, name in enumerate(listed) if name.partition(".")[0] == label]
    index = places[0] if len(places) == 1 else context.node_rank
    if len(places) > 1 or index is None or index >= len(listed):
        text = "--gang: {0} does not have this host, {1}, once; expected the names by which the pods know each other"
        raise InputError(filled(text, source, printable(pod.host_name)))
    if pod.size and pod.size != len(listed):
        raise InputError(filled("--gang {0}: {1} names {2} hosts", pod.size, source, len(listed)))
    described = filled("{0} of a gang, from {1}", count_pods(len(listed)), source)
    return GangPlace(index=index, hosts=tuple(listed), names=tuple(listed), source=described)


def _of_leader_worker_set(pod: PodDescription, context: JobContext) -> GangPlace:
    leader, _, domain = pod.environ["LWS_LEADER_ADDRESS"].partition(".")
    size = _size(pod, context, "LWS_GROUP_SIZE")
    index = context.node_rank
    if index is None or not leader:
        raise InputError("--gang: LWS_WORKER_INDEX has no number")
    hosts = (leader, *(f"{leader}-{number}" for number in range(1, size)))
    names = tuple(f"{host}.{domain}" if domain else host for host in hosts)
    return _place(index, hosts, names, "LWS_LEADER_ADDRESS")


def _of_roles(pod: PodDescription, context: JobContext, job: str, role: str, number: int) -> GangPlace:
    is_kubeflow = context.scheduler == "kubeflow"
    size = _size(pod, context, "PET_NNODES" if is_kubeflow else "")
    first = next(name for variable, name in _FIRST_PODS.items() if not variable or variable in pod.environ)
    of_workers_alone = role == "worker" and context.node_rank == number
    if of_workers_alone and not is_kubeflow:
        text = "--gang: {0}-{1}-0 has no NPU, and no service leads to the workers; expected HOSTS or a rank table"
        raise InputError(filled(text, printable(job), first))
    workers = [f"{job}-worker-{worker}" for worker in range(size)]
    hosts = tuple(workers if of_workers_alone else [f"{job}-{first}-0", *workers[:-1]])
    index = number if of_workers_alone or role != "worker" else number + 1
    return _place(index, hosts, hosts if is_kubeflow else ("",) * size, _OF_ROLES[context.scheduler])


def _of_nodes(pod: PodDescription, context: JobContext) -> GangPlace:
    """Each has its node's name in the report, from itself."""
    address = next((pod.environ[name] for name in ("MASTER_ADDR", "MS_SCHED_HOST") if name in pod.environ), "")
    rank, of_workers_alone = context.node_rank, not context.node_rank and pod.environ.get("MS_ROLE") == "MS_WORKER"
    if context.scheduler != "mindcluster" or rank is None or not address or of_workers_alone:
        text = "--gang: this pod has the network and the name of its node, {0}; expected HOSTS"
        raise InputError(filled(text, printable(pod.host_name)))
    size = _size(pod, context, "")
    hosts = (address if rank else pod.host_name, *(f"pod-{number}" for number in range(1, size)))
    source = "MS_NODE_RANK" if "MS_NODE_RANK" in pod.environ else "RANK"
    place = _place(rank, hosts, ("",) * size, source, is_named=False)
    return msgspec.structs.replace(place, address=address, job=context.job_id)


def _of_ray_cluster(pod: PodDescription, context: JobContext) -> GangPlace:
    size, head = _size(pod, context, ""), pod.environ["FQ_RAY_IP"]
    leads = _RAY_HEAD.match(pod.host_name) is not None
    hosts = (pod.host_name if leads else head, *(f"pod-{number}" for number in range(1, size)))
    return _place(0 if leads else UNNUMBERED, hosts, (head, *[""] * (size - 1)), "FQ_RAY_IP", is_named=False)


def _of_ordinal(pod: PodDescription, context: JobContext) -> GangPlace:
    match = _ORDINAL.match(pod.host_name)
    if match is None:
        text = "--gang: the host name {0} has no number at its end, and nothing lists the pods; expected HOSTS"
        raise InputError(filled(text, printable(pod.host_name)))
    base, index, completion = match[1], int(match[2]), pod.environ.get(_INDEX, "")
    if completion.isdecimal() and int(completion) != index:
        text = "--gang: {0} is {1}, and the host name {2}; expected the number at its end to be the same, or HOSTS"
        raise InputError(filled(text, _INDEX, printable(completion[:20]), printable(pod.host_name)))
    hosts = tuple(f"{base}-{number}" for number in range(_size(pod, context, "")))
    domain = _subdomain(pod)
    names = tuple(f"{host}.{domain}" if domain else host for host in hosts)
    return _place(index, hosts, names, _INDEX if completion else "the number in the host name")


def _place(index: int, hosts: tuple[str, ...], names: tuple[str, ...], source: str, is_named: bool = True) -> GangPlace:
    if index >= len(hosts):
        text = "--gang: this pod has index {0}, and the gang has {1}; expected --gang with the number of all pods"
        raise InputError(filled(text, index, count_pods(len(hosts))))
    described = filled("{0} of a gang, by {1}", count_pods(len(hosts)), source)
    return GangPlace(index=index, hosts=hosts, names=names, is_named=is_named, source=described)


def count_pods(count: int) -> str:
    """``4 pods``."""
    return count_noun(count, "pod")


def _size(pod: PodDescription, context: JobContext, variable: str) -> int:
    size = pod.size or context.node_count or 0
    if not 1 <= size <= MAX_SIZE:
        text = "--gang auto: no variable has the number of pods{0}; expected it, as in --gang 4, or HOSTS"
        raise InputError(filled(text, f" ({variable})" if variable else ""))
    return size


def _subdomain(pod: PodDescription) -> str:
    """``train`` of ``10.0.0.3 train-0.train.ns.svc.cluster.local train-0``; empty where the pod has none."""
    full = [name for _, *names in _own_lines(pod) for name in names if name.startswith(f"{pod.host_name}.")]
    return full[0].split(".")[1] if full else ""


def _own_lines(pod: PodDescription) -> list[list[str]]:
    """The words of each line of /etc/hosts that has its name: an address, then names."""
    lines = [line.partition("#")[0].split() for line in pod.hosts_file.splitlines()]
    return [fields for fields in lines if pod.host_name in fields[1:]]
