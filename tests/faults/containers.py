"""What a container lacks. The test hosts become one by podman's mark, or show one in a mount namespace to --within."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults import Prepared, Row
from tests.faults.kernel import LISTEN, held

CONTAINER = "mount -t tmpfs none /run && : >/run/.containerenv"
EVERY = (0, 1, 2, 3)


def within(lacks: str, has: str = ":") -> Callable[[Any, Path, bool], Prepared]:
    """A container without something: a shell command that takes it away in a mount namespace of its own.

    ``has``: the command of the healthy one.
    """

    def prepare(fleet: Any, folder: Path, healthy: bool) -> Prepared:
        script = f"{CONTAINER} && {has if healthy else lacks}"
        return Prepared(["--within", f"unshare -m sh -c '{script} && exec \"$@\"' sh"])

    return prepare


ROWS: list[Row] = [
    Row(
        "container-devices-missing",
        "rm /dev/hisi_hdc; : >/run/.containerenv",
        clause="device files",
        values={"missing": ["/dev/hisi_hdc"]},
        healthy_first=False,
        apart=("*",),
    ),
    Row(
        "container-devices-missing",
        prepare=within("mknod -m 666 /run/null c 1 3 && mount -t tmpfs none /dev && cp -a /run/null /dev/null"),
        fault="",
        blamed=EVERY,
        values={"count": 8},
    ),
    Row(
        "container-hccn-conf-missing",
        prepare=within("mount --bind /dev/null /etc/hccn.conf"),
        fault="",
        blamed=EVERY,
        values={"path": "/etc/hccn.conf"},
    ),
    Row(
        "mesh-proxy-intercepts",
        ": >/run/.containerenv\n"
        + held("\n".join([LISTEN.format(port=15001), "other" + LISTEN.format(port=15006)[3:]]))[0],
        fleet="cpu",
        values={"mesh": "Istio", "ports": [15001, 15006]},
        healthy_first=False,
        apart=("*",),
    ),
    Row(
        "pod-network-missing",
        "mkdir -p /etc/podnetinfo\ncat >/etc/podnetinfo/annotations <<'END'\n"
        'k8s.v1.cni.cncf.io/networks="rdma-a"\n'
        'k8s.v1.cni.cncf.io/network-status="[{\\"name\\": \\"team/rdma-a\\", \\"interface\\": \\"net1\\"}]"\nEND',
        "rm -r /etc/podnetinfo",
        fleet="cpu",
        values={"network": "team/rdma-a", "interface": "net1"},
        healthy_first=False,
        apart=("*",),
    ),
    Row(
        "container-devices-not-allotted",
        "",
        prepare=within("export ASCEND_VISIBLE_DEVICES=0-3", has="export ASCEND_VISIBLE_DEVICES=0-7"),
        blamed=EVERY,
        values={"devices": [4, 5, 6, 7], "expected": 4},
    ),
    Row("container-user-unnamed", "", prepare=within('exec setpriv --reuid 54321 --clear-groups "$@"'), blamed=EVERY),
]
