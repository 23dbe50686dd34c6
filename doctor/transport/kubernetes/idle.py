"""Pods on a node that have accelerators, or other devices, of their own: what a test must never run beside.

A device is an extended resource: a name with a domain that is not Kubernetes' own (Kubernetes, "Extended Resources":
fully-qualified resource names outside of the kubernetes.io domain), or a resource claim (pod spec, ``resourceClaims``).
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import transport_error
from doctor.transport.kubernetes.api_server import ApiServer

_MOST_PODS = 5000


class _Resources(msgspec.Struct, frozen=True):
    limits: dict[str, str] | None = None
    requests: dict[str, str] | None = None


class _Container(msgspec.Struct, frozen=True):
    resources: _Resources = _Resources()


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] | None = None
    resource_claims: tuple[object, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()
    metadata: dict[str, object] = {}


def pod_with_devices(server: ApiServer, node: str) -> str:
    """One pod on the node that has devices, as ``NAMESPACE/NAME (nvidia.com/gpu)``; empty where there is none.

    Raises: TransportError.
    """
    selector = quote(f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed", safe="")
    answer = server.request("GET", f"/api/v1/pods?fieldSelector={selector}&limit={_MOST_PODS}")
    try:
        page = msgspec.convert(answer, _List, strict=False)
    except msgspec.ValidationError as error:
        detail = strip_control_chars(str(error), 120)
        text = filled("the API server's answer is none that Kubernetes gives: {0}", detail)
        raise transport_error("error", text) from None
    if page.metadata.get("continue"):
        raise transport_error("flood", filled("the node {0} has more than {1} pods", node, _MOST_PODS))
    for pod in page.items:
        resource = _device(pod.spec)
        if resource and pod.status.phase not in ("Succeeded", "Failed"):
            name = f"{pod.metadata.namespace}/{pod.metadata.name} ({resource})"
            return strip_control_chars(name, 300)
    return ""


def _device(spec: _Spec) -> str:
    """The name of the first device that a pod requests."""
    if spec.resource_claims:
        return "resourceClaims"
    for container in (*spec.containers, *(spec.init_containers or ())):
        amounts = {**(container.resources.requests or {}), **(container.resources.limits or {})}
        for name, amount in amounts.items():
            domain, slash, _ = name.partition("/")
            own = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
            if slash and not own and str(amount) != "0":
                return name
    return ""
