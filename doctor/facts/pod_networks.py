"""Networks beside the cluster's own that Multus was to attach to a pod, and the interfaces that are there.

Sources: Kubernetes Network Custom Resource Definition De-facto Standard (annotations: ``k8s.v1.cni.cncf.io/networks``,
requested, and ``k8s.v1.cni.cncf.io/network-status``, attached, with ``name``, ``interface``, ``ips``, ``default`` and,
since 1.1, ``device-info``); network-resources-injector, pkg/types (it mounts the annotations at
``/etc/podnetinfo/annotations``); Kubernetes, "Downward API" (a line ``key="quoted value"`` each).
"""

from __future__ import annotations

import os

import msgspec

from doctor.engine.addresses import is_plain_address
from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.remote.runtime.reading import names_in, read_text

REQUESTED, ATTACHED = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
VARIABLE = "DOCTOR_POD_NETWORKS"
"""What the way through the API server tells a pod of itself: both annotations, as JSON, in hexadecimal digits."""
ANNOTATIONS_FILE = "/etc/podnetinfo/annotations"
MAX_TEXT = 4096
"""Characters of both annotations; longer ones are left out."""
_MAX_NETWORKS = 64


def list_pod_networks(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: both annotations, where they are known here, and the names of all interfaces."""
    texts: dict = {}  # type: ignore[type-arg]
    encoded, lines = os.environ.get(VARIABLE, ""), read_text(ANNOTATIONS_FILE, 1 << 18).splitlines()
    try:
        if encoded or lines:  # in a pod: on other hosts the module would cost more than the question
            import json
        if encoded:
            texts = json.loads(bytearray.fromhex(encoded).decode("utf-8"))
        for line in () if texts else lines:
            name, _, value = line.partition("=")
            if name in (REQUESTED, ATTACHED):
                texts[name] = json.loads(value)
    except ValueError:
        pass
    links = sorted(names_in("/sys/class/net"))[:512]
    return {"requested": texts.get(REQUESTED, ""), "attached": texts.get(ATTACHED, ""), "links": links}


class _DeviceInfo(msgspec.Struct, frozen=True):
    type: str = ""


class PodNetwork(msgspec.Struct, frozen=True, rename={"device_info": "device-info"}):
    """One entry of the status."""

    name: str = ""
    interface: str = ""
    ips: tuple[str, ...] | None = None
    default: bool = False
    device_info: _DeviceInfo | None = None

    @property
    def may_lack_interface(self) -> bool:
        """A device that a program drives by itself (vfio, vhost-user) is no interface of the kernel."""
        return not self.interface or self.device_info is not None


class _Request(msgspec.Struct, frozen=True):
    name: str = ""


class _Answer(msgspec.Struct, frozen=True):
    requested: str
    attached: str
    links: tuple[str, ...]


class PodNetworks(Fact, frozen=True):
    r"""The networks that the pod's annotations name, where the job runs.

    Raw output, as JSON::

        {"requested": "rdma-a", "links": ["eth0", "lo"],
         "attached": "[{\"name\": \"ns/rdma-a\", \"interface\": \"net1\", \"ips\": [\"192.168.0.3\"]}]"}
    """

    probe = ask(list_pod_networks, job=True)

    requested: tuple[str, ...]
    """Without their namespaces."""
    attached: tuple[PodNetwork, ...]
    links: tuple[str, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> PodNetworks:
        sent = msgspec.convert(answer.json(), _Answer)
        if not sent.requested and not sent.attached:
            raise Absent("no annotation names networks of a pod")
        if not sent.links:
            raise Unreadable("the kernel lists no interface, not even lo")
        networks = msgspec.json.decode(sent.attached, type=list[PodNetwork]) if sent.attached else []
        if len(networks) > _MAX_NETWORKS:
            raise Unreadable("the pod has too many networks")
        for network in networks:
            if not all(is_plain_address(address) for address in network.ips or ()):
                raise Unreadable("the status of the pod's networks has an address that is none")
        return cls(requested=_requested(sent.requested), attached=tuple(networks), links=sent.links)


def _requested(text: str) -> tuple[str, ...]:
    """``ns/a@net1, b`` or a JSON list of ``{"name": "a"}``. Raises: msgspec.MsgspecError."""
    if text.lstrip().startswith("["):
        names = [request.name for request in msgspec.json.decode(text, type=list[_Request])]
    else:
        names = [word.partition("@")[0] for word in text.split(",")]
    return tuple(dict.fromkeys(name.strip().rpartition("/")[2] for name in names[:_MAX_NETWORKS] if name.strip()))
