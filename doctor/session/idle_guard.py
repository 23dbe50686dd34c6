"""A test that uses devices runs only while no pod on its node has any, and ends when one comes."""

from __future__ import annotations

import os
import signal
import threading
import time
from urllib.parse import quote

import msgspec

from doctor.engine.errors import CommandError
from doctor.engine.exit_code import Exit
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.session.output_files import print_warning
from doctor.transport import TransportError, transport_error
from doctor.transport.kubernetes.api_server import ApiServer
from doctor.transport.kubernetes.pods import Page, Pod, decoded

_INTERVAL = 2.0
"""Seconds; a kubelet takes as long to start the first container of a pod."""
_PATIENCE = 10.0


def run_only_when_idle(node: str) -> None:
    """Returns where the node is idle, and from then on ends this process by SIGTERM once it is not, or not known.

    Raises: CommandError, where it is busy, or that is not known.
    """
    if problem := _problem(node):
        raise CommandError(problem, Exit.NOTHING)
    threading.Thread(target=_watch, args=(node,), daemon=True).start()


def _watch(node: str) -> None:
    while not (problem := _problem(node)):
        time.sleep(_INTERVAL)
    print_warning(problem)
    os.kill(os.getpid(), signal.SIGTERM)


def _problem(node: str) -> str:
    """Why nothing may be tested; empty where something may."""
    try:
        pod = pod_with_devices(ApiServer(_PATIENCE), node)
    except TransportError as error:
        return filled("--when-idle {0}: nothing is tested: {1}", node, error.text)
    return filled("--when-idle {0}: nothing is tested beside the pod {1}", node, pod) if pod else ""


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
