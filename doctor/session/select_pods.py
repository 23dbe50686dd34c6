"""The hosts of a run that are pods, or nodes reached by pods: asked of the API server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.errors import InputError, UsageError
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory, without
from doctor.facts.container import ALLOTTED_NPUS, REQUESTED_GPUS, parse_visible
from doctor.facts.pod_networks import ATTACHED, MAX_TEXT, REQUESTED, VARIABLE
from doctor.hosts.nodeset import InventoryError, expand_nodeset
from doctor.hosts.selection import HostSelection, PodAccess, PodSelection
from doctor.transport import TransportError
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.jobs import is_named, pods_of_job, rows_of_kind, without_replaced
from doctor.transport.kubernetes.pods import MAX_PODS, Pod, is_name, list_pods, namespace_of, natural_order, read_pod
from doctor.transport.options import CONNECT_TIMEOUT

_ONE_BY_ONE = 8
"""Named pods that are read each for itself; more are looked up in the list of their namespace."""
_ALLOTTED, _NPUS = "huawei.com/AscendReal", ("huawei.com/Ascend", "huawei.com/npu")
"""MindCluster, "K8s Native Object Description": the annotation has the chips that ascend-device-plugin has allotted."""
_GPUS, _MOST_DIGITS = re.compile(r"nvidia\.com/(?:gpu(?:\.shared)?|mig-[\w.-]{1,40})", re.ASCII), 4
"""NVIDIA k8s-device-plugin: whole GPUs, those that pods share, and MIG devices with the strategy "mixed". A container
has no more device files of GPUs than it requests of these together."""


class FoundPods(msgspec.Struct, frozen=True):
    """The pods that a selection names."""

    pods: tuple[Pod, ...]
    absent: tuple[str, ...]
    """Names that no pod has."""
    kubectl: tuple[str, ...]
    namespace: str
    source: str
    notes: tuple[str, ...] = ()


def pods_inventory(selection: HostSelection) -> Inventory:
    """The hosts, and the way to them. Raises: InputError, UsageError."""
    choice = selection.pods
    assert choice is not None
    if choice.node_image:
        return _nodes(choice, selection)
    listing = find_pods(choice, selection.nodes or selection.hosts or "")
    return _without_excluded(inventory_of(listing, choice.container), selection)


def inventory_of(listing: FoundPods, container: str) -> Inventory:
    """These pods as hosts. ``container``: as the user names it; empty for the one that kubectl chooses."""
    containers = {pod.name: pod.container(container) for pod in listing.pods}
    unready = {name: filled("the namespace {0} has no such pod", listing.namespace) for name in listing.absent}
    for pod in listing.pods:
        if not containers[pod.name]:
            unready[pod.name] = filled("its pod has no container {0}", container)
        elif why := pod.why_unready(containers[pod.name]):
            unready[pod.name] = why
    hosts = (*(pod.name for pod in listing.pods), *listing.absent)
    access = PodAccess(
        kubectl=listing.kubectl,
        namespace=listing.namespace,
        containers=containers,
        addresses={pod.name: pod.status.pod_ip for pod in listing.pods if pod.status.pod_ip},
        names={pod.name: pod.service_name for pod in listing.pods if pod.service_name or not is_named(pod)},
        nodes={pod.name: pod.spec.node_name for pod in listing.pods if pod.spec.node_name},
        variables={
            pod.name: words
            for pod in listing.pods
            if (words := " ".join((*_networks_variable(pod), *_device_variables(pod, containers[pod.name]))))
        },
        unready=unready,
    )
    source = filled("{0} from {1}", count_noun(len(hosts), "host"), listing.source)
    return Inventory(hosts, source, notes=listing.notes, pods=access)


def _networks_variable(pod: Pod) -> Iterator[str]:
    """What its annotations say of networks, for `doctor.facts.pod_networks`.

    A pod with its node's network gets no other, even if it requests one.
    """
    annotations = pod.metadata.annotations or {}
    texts = {name: annotations[name] for name in (REQUESTED, ATTACHED) if name in annotations}
    if texts and not pod.spec.host_network and sum(map(len, texts.values())) <= MAX_TEXT:
        yield f"{VARIABLE}={msgspec.json.encode(texts).hex()}"


def _device_variables(pod: Pod, container: str) -> Iterator[str]:
    """The accelerators that a container requests and was allotted, for `doctor.facts.container`.

    The plugin of Ascend writes what the pod has; which container has it is clear where one alone requests NPUs. The
    kubelet's list of ids (podresources on the node, allocatedResourcesStatus from 1.36 on) is not asked: of NPUs it has
    those that the kubelet chose (``huawei.com/kltDev``), which need not be those that the plugin gave (MindCluster,
    "Ascend Device Plugin", Allocate); of GPUs the plugin hands the same ids to the container, in its variable.
    """
    limits = {item.name: item.resources.limits or {} for item in pod.spec.containers}
    with_npus = [name for name, wanted in limits.items() if any(key.startswith(_NPUS) for key in wanted)]
    npus = parse_visible((pod.metadata.annotations or {}).get(_ALLOTTED, "")[:MAX_TEXT])
    if npus and with_npus == [container]:
        yield f"{ALLOTTED_NPUS}={','.join(map(str, npus))}"
    gpus = [str(count) for name, count in limits.get(container, {}).items() if _GPUS.fullmatch(name)]
    if gpus and all(text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS for text in gpus):
        yield f"{REQUESTED_GPUS}={sum(map(int, gpus))}"


def find_pods(choice: PodSelection, pod_names: str = "") -> FoundPods:
    """The pods of a job, those with labels, or ``pod_names``, a node set. Raises: InputError, UsageError."""
    ways = {"HOSTS": pod_names, "--selector": choice.selector, "--job": choice.job}
    used = [option for option, value in ways.items() if value]
    if len(used) != 1:
        options = " and ".join(used) or "none"
        raise UsageError(
            filled("--transport kubernetes: expected one of HOSTS, --selector and --job; {0} is given", options)
        )
    try:
        rows_of_kind(choice.job)  # before the API server is asked
        patience = choice.connect_timeout or CONNECT_TIMEOUT
        program = kubectl.command_line(choice.kubeconfig, choice.context)
        namespace = namespace_of(program, choice.namespace)
        if pod_names:
            names = expand_nodeset(pod_names, "the command line")
            named, absent = _named_pods(program, namespace, names, patience)
            return FoundPods(named, absent, program, namespace, filled("the command line, pods of {0}", namespace))
        if choice.selector:
            pods, notes = without_replaced(
                _alive(sorted(list_pods(program, namespace, choice.selector, patience), key=natural_order))
            )
            source = filled("the pods {0} of {1}", printable(choice.selector, 120), namespace)
            if not pods:
                raise InventoryError(
                    filled("--selector {0}: no pod of {1} has these labels", printable(choice.selector, 120), namespace)
                )
            return FoundPods(tuple(pods), (), program, namespace, source, notes)
        of_job = pods_of_job(choice.job, list_pods(program, namespace, patience=patience))
        absent = absent_replicas(program, namespace, of_job.pods, patience)
    except TransportError as error:
        raise InputError(_with_hint(error)) from None
    except InventoryError as error:
        raise InputError(str(error)) from None
    source = filled("the job {0} of {1}", printable(choice.job, 120), namespace)
    return FoundPods(tuple(of_job.pods), absent, program, namespace, source, of_job.notes)


def _without_excluded(inventory: Inventory, selection: HostSelection) -> Inventory:
    try:
        return msgspec.structs.replace(without(inventory, selection.exclude), pods=inventory.pods)
    except InventoryError as error:
        raise InputError(str(error)) from None


def _with_hint(error: TransportError) -> str:
    return filled("{0}; try {1}", error.text, error.hint) if error.hint else error.text


def _alive(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Without those that have ended, if any has not: labels stay on what is over."""
    return tuple(pod for pod in pods if not pod.ended) or tuple(pods)


def _named_pods(
    program: Sequence[str], namespace: str, names: Sequence[str], patience: float
) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """The pods of these names, and the names that none has. Few need no right to list."""
    listing: dict[str, Pod] = {}
    if len(names) > _ONE_BY_ONE:
        listing = {pod.name: pod for pod in list_pods(program, namespace, patience=patience)}
    else:
        for name in names:
            try:
                listing[name] = read_pod(program, namespace, name, patience)
            except TransportError as error:
                if error.kind != "name":
                    raise
    in_order = tuple(listing[name] for name in names if name in listing)
    return in_order, tuple(name for name in names if name not in listing)


def _nodes(choice: PodSelection, selection: HostSelection) -> Inventory:
    """Nodes, which HOSTS names. Raises: InputError, UsageError."""
    pod_names = selection.nodes or selection.hosts
    if not pod_names or choice.names_pods or choice.container:
        raise UsageError(
            "--node-image: expected HOSTS with the names of nodes, and no --selector, --job or --container"
        )
    try:
        program = kubectl.command_line(choice.kubeconfig, choice.context)
        namespace = namespace_of(program, choice.namespace)
        hosts = tuple(dict.fromkeys(expand_nodeset(pod_names, "the command line")))
    except TransportError as error:
        raise InputError(_with_hint(error)) from None
    except InventoryError as error:
        raise InputError(str(error)) from None
    access = PodAccess(
        kubectl=program, namespace=namespace, node_image=choice.node_image, nodes={host: host for host in hosts}
    )
    source = filled("{0} from the command line, each by a pod on it", count_noun(len(hosts), "host"))
    return _without_excluded(Inventory(hosts, source, pods=access), selection)


class _Ordinals(msgspec.Struct, frozen=True):
    start: int = 0


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1
    ordinals: _Ordinals | None = None


class _StatefulSet(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


def absent_replicas(
    program: Sequence[str], namespace: str, pods: Sequence[Pod], patience: float = CONNECT_TIMEOUT
) -> tuple[str, ...]:
    """Names of pods that the StatefulSets of these pods should have, and that are none of them.

    Empty where a StatefulSet cannot be read: the right to do so is not needed for anything else.
    """
    present = {pod.name for pod in pods}
    owners = dict.fromkeys(owner.name for pod in pods for owner in pod.owners if owner.kind == "StatefulSet")
    return tuple(
        name
        for owner in filter(is_name, owners)
        for name in _replicas(program, namespace, owner, patience)
        if name not in present
    )


def _replicas(program: Sequence[str], namespace: str, name: str, patience: float) -> Iterator[str]:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    try:
        answer = kubectl.ask(program, "get", "--raw", path, patience=patience)
        spec = msgspec.json.decode(answer, type=_StatefulSet).spec
    except (TransportError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    first = spec.ordinals.start if spec.ordinals else 0
    for number in range(first, first + min(spec.replicas, MAX_PODS)):
        yield f"{name}-{number}"


prepare_decoding(_StatefulSet)
