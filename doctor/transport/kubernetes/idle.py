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
from doctor.transport.kubernetes.pods import Page, Pod, decoded

_MOST_PODS = 5000


def pod_with_devices(server: ApiServer, node: str) -> str:
    """One pod on the node that has devices, as ``NAMESPACE/NAME (nvidia.com/gpu)``; empty where there is none.

    Raises: TransportError.
    """
    selector = quote(f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed", safe="")
    answer = server.request("GET", f"/api/v1/pods?fieldSelector={selector}&limit={_MOST_PODS}")
    page = decoded(msgspec.json.encode(answer), Page[Pod])
    if page.metadata.next:
        raise transport_error("flood", filled("the node {0} has more than {1} pods", node, _MOST_PODS))
    for pod in page.items:
        resource = _device(pod)
        if resource and pod.status.phase not in ("Succeeded", "Failed"):
            name = f"{pod.metadata.namespace}/{pod.name} ({resource})"
            return strip_control_chars(name, 300)
    return ""


def _device(pod: Pod) -> str:
    """The name of the first device that a pod requests."""
    if pod.spec.resource_claims:
        return "resourceClaims"
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        amounts = {**(container.resources.requests or {}), **(container.resources.limits or {})}
        for name, amount in amounts.items():
            domain, slash, _ = name.partition("/")
            is_builtin = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
            if slash and not is_builtin and str(amount) != "0":
                return name
    return ""
