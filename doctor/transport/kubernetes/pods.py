"""The pods of a namespace as the API server lists them: which belong to a job, which can be entered, and why not.

All that stands in an answer is untrusted: names are checked before they become words of a command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.transport import TransportError, transport_error
from doctor.transport.kubernetes import kubectl
from doctor.transport.options import CONNECT_TIMEOUT

AnswerT = TypeVar("AnswerT")
ObjectT = TypeVar("ObjectT")
_PAGE, _MOST_PAGES = 500, 40
MAX_PODS = 10_000
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""The annotation by which kubectl chooses: kubectl reference, "exec"; else the first container."""
_INDEX = "batch.kubernetes.io/job-completion-index"
"""The annotation of an Indexed Job's pods: Kubernetes, "Well-Known Labels, Annotations and Taints"."""
_SUFFIX, _MOST_BEFORE_SUFFIX = 5, 58
"""Letters that are appended to ``generateName``, and those kept of it: apiserver, storage/names/generate.go."""
_REVISION = "pod-template-hash"
"""The label that tells the pods of one revision of a Deployment, and is part of its ReplicaSet's name: Kubernetes,
"Deployments", pod-template-hash label."""
_NOT_YET = ("", "PodInitializing")
"""Reasons of a container that waits for the init containers before it."""
_IN_CLUSTER_NAMESPACE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class Owner(msgspec.Struct, frozen=True):
    """What created an object."""

    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resources: _Resources = _Resources()
    restart_policy: str = ""
    """``Always`` for an init container that runs on beside the others: Kubernetes, "Sidecar Containers"."""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    resource_claims: tuple[object, ...] | None = None


class _Reason(msgspec.Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    exit_code: int = 0


class ContainerState(msgspec.Struct, frozen=True):
    """One of three is set."""

    waiting: _Reason | None = None
    running: dict[str, str] | None = None
    terminated: _Reason | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet last told of a container."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    restart_count: int = 0


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[_Condition, ...] | None = None


class ApiObject(msgspec.Struct, frozen=True):
    """An object of any kind, such as a node, with what all have."""

    metadata: _Metadata = _Metadata()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}


class Pod(ApiObject, frozen=True):
    """A pod, with what doctor looks at."""

    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def owners(self) -> tuple[Owner, ...]:
        return self.metadata.owner_references or ()

    @property
    def service_name(self) -> str:
        """The name that the headless service of its ``subdomain`` gives it; empty where it is part of none."""
        return f"{self.spec.hostname or self.name}.{self.spec.subdomain}" if self.spec.subdomain else ""

    @property
    def ended(self) -> bool:
        """No container of it will run again."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def leaves(self) -> bool:
        """It has ended, or is being deleted."""
        return self.ended or bool(self.metadata.deletion_timestamp)

    @property
    def place(self) -> tuple[object, ...]:
        """Equal for pods where a later one takes over from an earlier; empty for a pod whose name is fixed.

        Those are of one owner, or of two revisions of one Deployment, and of one index where they have one.
        """
        metadata = self.metadata
        generated = metadata.generate_name[:_MOST_BEFORE_SUFFIX]
        if not generated or metadata.name[:-_SUFFIX] != generated:
            return ()
        index, revision = (metadata.annotations or {}).get(_INDEX, ""), self.labels.get(_REVISION, "")
        ending = f"-{revision}-"
        if not revision or not generated.endswith(ending):
            return (self.owners, generated, index)
        owners = tuple(Owner(owner.kind, owner.name.removesuffix(ending[:-1])) for owner in self.owners)
        return (owners, generated.removesuffix(ending), index)

    def container(self, requested: str = "") -> str:
        """The container that kubectl would choose, or the requested one; empty where the pod has none so named."""
        names = [container.name for container in self.spec.containers if _NAME.fullmatch(container.name)]
        if requested:
            return requested if requested in names else ""
        default = (self.metadata.annotations or {}).get(_DEFAULT_CONTAINER, "")
        return default if default in names else next(iter(names), "")

    def why_unready(self, container: str) -> str:
        """Why nothing can be run in a container of it; empty where something can."""
        status = self.status
        states = {item.name: item for item in status.container_statuses or ()}
        chosen = states.get(container, ContainerStatus())
        if self.ended:
            first = "" if status.reason or chosen.state.terminated else self._why_not_initialized()
            return first or filled("its pod has ended: {0}", _because(self._end_reason(chosen)))
        if chosen.state.running is not None:
            return ""
        if self.metadata.deletion_timestamp:
            return filled("its pod has been ending since {0}", _one_line(self.metadata.deletion_timestamp))
        scheduled = next((item for item in status.conditions or () if item.type == "PodScheduled"), None)
        if not self.spec.node_name and scheduled and scheduled.status == "False":
            return filled("its pod is on no node: {0}", _one_line(scheduled.message or scheduled.reason))
        if chosen.state.terminated:
            return filled("its container {0} has ended: {1}", container, _because(chosen.state.terminated))
        begun = chosen.state.waiting is not None and chosen.state.waiting.reason not in _NOT_YET
        if not begun and (first := self._why_not_initialized()):
            return first
        if chosen.state.waiting:
            return filled("its container {0} waits: {1}", container, _wait(chosen))
        return filled("its pod does not run yet (phase {0})", _one_line(status.phase or "unknown"))

    @property
    def _sidecars(self) -> set[str]:
        """Init containers that run on beside the others."""
        return {sidecar.name for sidecar in self.spec.init_containers if sidecar.restart_policy == "Always"}

    def with_logs(self, container: str) -> list[ContainerStatus]:
        """The container, and the init containers that have failed before it."""
        chosen = (status for status in self.status.container_statuses or () if status.name == container)
        failed = [
            initial
            for initial in self.status.init_container_statuses or ()
            if _NAME.fullmatch(initial.name) and initial.name not in self._sidecars
            if any(end and end.exit_code for end in (initial.state.terminated, initial.last_state.terminated))
        ]
        return [next(chosen, ContainerStatus(name=container)), *failed]

    def _why_not_initialized(self) -> str:
        """Which init container the others wait for, or have waited for in vain; empty where the status shows none."""
        for initial in self.status.init_container_statuses or ():
            name, state = _one_line(initial.name), initial.state
            if state.waiting and state.waiting.reason not in _NOT_YET:
                return filled("its init container {0} waits: {1}", name, _wait(initial))
            if state.running is not None and initial.name not in self._sidecars:
                return filled("its init container {0} still runs", name)
            if state.terminated and state.terminated.exit_code and initial.name not in self._sidecars:
                return filled("its init container {0} has ended: {1}", name, _because(state.terminated))
        return ""

    def _end_reason(self, chosen: ContainerStatus) -> _Reason:
        of_pod = _Reason(self.status.reason, self.status.message) if self.status.reason else None
        return of_pod or chosen.state.terminated or _Reason(self.status.phase)


class _PageMetadata(msgspec.Struct, frozen=True, rename={"next": "continue"}):
    next: str = ""


class Page(msgspec.Struct, Generic[ObjectT], frozen=True):
    """A part of a list."""

    items: tuple[ObjectT, ...] = ()
    metadata: _PageMetadata = _PageMetadata()


def namespace_of(program: Sequence[str], requested: str = "") -> str:
    """The namespace that is requested, else that of kubectl's configuration, else that of this pod, else ``default``.

    Raises: TransportError for a name that no namespace can have.
    """
    name = requested
    if not name:
        view = ("config", "view", "--minify", "--output=jsonpath={.contexts[0].context.namespace}")
        try:
            name = kubectl.ask(program, *view, limit=1 << 16).decode("utf-8", "replace").strip()
        except TransportError:
            name = ""  # no configuration: in a pod there is none, and kubectl uses the pod's own account
    if not name:
        try:
            with open(_IN_CLUSTER_NAMESPACE, encoding="utf-8") as file:
                name = file.read(300).strip()
        except (OSError, UnicodeError):
            name = "default"
    if not _NAME.fullmatch(name):
        raise transport_error("error", filled("{0} is no name of a namespace", strip_control_chars(name, 80)))
    return name


def list_pods(
    program: Sequence[str], namespace: str, selector: str = "", patience: float = CONNECT_TIMEOUT
) -> list[Pod]:
    """The pods of a namespace, those with these labels. ``patience``: see `kubectl.while_absent`.

    Raises: TransportError.
    """
    items = list_objects(program, f"/api/v1/namespaces/{namespace}/pods", selector, Page[Pod], patience)
    pods = list(islice(items, MAX_PODS + 1))
    if len(pods) > MAX_PODS:
        raise transport_error("flood", filled("the namespace {0} has more than {1} such pods", namespace, MAX_PODS))
    return [pod for pod in pods if _NAME.fullmatch(pod.name)]


def list_objects(
    program: Sequence[str], path: str, selector: str, kind: type[Page[ObjectT]], patience: float = CONNECT_TIMEOUT
) -> Iterator[ObjectT]:
    """The objects of a path, those with these labels; by pages, at most `_MOST_PAGES`. Raises: TransportError."""
    options = f"?limit={_PAGE}" + (f"&labelSelector={quote(selector, safe='')}" if selector else "")
    following = ""
    for _ in range(_MOST_PAGES):
        more = f"&continue={quote(following, safe='')}" if following else ""
        page = decoded(kubectl.ask(program, "get", "--raw", path + options + more, patience=patience), kind)
        yield from page.items
        following = page.metadata.next
        if not following:
            return


def read_pod(program: Sequence[str], namespace: str, name: str, patience: float = CONNECT_TIMEOUT) -> Pod:
    """One pod. ``patience``: see `kubectl.while_absent`. Raises: TransportError."""
    if not _NAME.fullmatch(name):
        raise transport_error("name", "its name is none that a pod can have")
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    pod = decoded(kubectl.ask(program, "get", "--raw", path, patience=patience), Pod)
    if pod.name != name:
        raise transport_error("error", "the API server's answer is about another pod")
    return pod


def is_name(text: str) -> bool:
    """Whether an object can have this name, so that it may stand in a path of the API server."""
    return bool(_NAME.fullmatch(text))


def natural_order(pod: Pod) -> tuple[object, ...]:
    """Sorts ``w-2`` before ``w-10``."""
    parts = re.split(r"(\d+)", pod.name)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def decoded(data: bytes, kind: type[AnswerT]) -> AnswerT:
    """An answer of the API server. Raises: TransportError."""
    try:
        return msgspec.json.decode(data, type=kind, strict=False)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = strip_control_chars(str(error), 120)
        raise transport_error(
            "error", filled("the API server's answer is none that Kubernetes gives: {0}", text)
        ) from None


def _because(reason: _Reason) -> str:
    """``OOMKilled (exit code 137)``, ``Evicted: The node was low on resource``."""
    parts = [_one_line(reason.reason) or "no reason given"]
    if reason.exit_code:
        parts.append(filled(" (exit code {0})", reason.exit_code))
    if reason.message:
        parts.append(f": {_one_line(reason.message)}")
    return joined("", parts)


def _wait(container: ContainerStatus) -> str:
    """Why a container waits, and how it ended before that."""
    last = container.last_state.terminated
    before = filled("; before that it ended: {0}", _because(last)) if last else ""
    return joined("", [_because(container.state.waiting or _Reason()), before])


def _one_line(text: str) -> str:
    return strip_control_chars(" ".join(text.split()), 160)


prepare_decoding(Page[Pod], Page[ApiObject], Pod)
