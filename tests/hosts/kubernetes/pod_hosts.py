"""Pods that look like test hosts: the same emulated devices, tools and settings, so that faults of hosts fit them.

Each is a privileged pod, one on each node, whose first process lays an overlay of the machine's root file system and
the overrides of a test host (`tests.hosts.testbed`) over itself, in the pod's own namespaces. What differs from a
test host is what is Kubernetes': network, names of the cluster, limits, environment, and the way in.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tests.hosts import testbed

if TYPE_CHECKING:
    from tests.hosts.kubernetes.cluster import Cluster

ROOT = pathlib.Path(__file__).parents[3]
_MACHINE = "/machine"
_READY = "/run/pod-is-ready"
_PROJECT, _PACKAGES = "/opt/shown/project", "/opt/shown/packages"
"""Where a pod has this project, whatever a fault does to /tmp."""
PROGRAM = {"PYTHONPATH": f"{_PROJECT}:{_PACKAGES}", "HOME": "/root", "DOCTOR_HISTORY": "off"}
"""The environment in which `INTERPRETER` finds `doctor` there."""
INTERPRETER = os.path.realpath(sys.executable)


class PodHosts:
    """Pods ``sb0001``, ``sb0002``, ...: one on each node of a cluster."""

    def __init__(self, cluster: Cluster, overrides: Mapping[str, testbed.Overrides], shm: str, shows: Sequence[str]):
        self.cluster = cluster
        self.hosts = tuple(f"sb{number + 1:04d}" for number in range(len(cluster.nodes)))
        folder = cluster.folder / "pods"
        (folder / "mnt").mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "share", ignore_errors=True)
        for name in self.hosts:
            (folder / "share" / name).mkdir(parents=True)
            given = testbed.merge(overrides.get("*", {}), overrides.get(name, {}), {"shows": list(shows)})
            plan = {"name": name, "address": "", "mac": "", "key": "", **testbed.merge(testbed.DEFAULTS, given)}
            shared = {"dir": str(folder), "shm": shm, "hosts": "127.0.0.1 localhost\n", "client_key": ""}
            import msgspec  # pid 1 of a pod runs this file with the machine's own Python, which lacks it

            shown = {_PROJECT: str(ROOT), _PACKAGES: str(pathlib.Path(msgspec.__file__).parents[1])}
            (folder / f"{name}.json").write_text(json.dumps({"host": plan, "shared": shared, "shown": shown}))
        self.start()

    def start(self) -> None:
        """Also again, where one was removed: those that are there stay as they are."""
        cluster, folder = self.cluster, self.cluster.folder / "pods"
        cluster.apply(*(_pod(name, node, folder) for name, node in zip(self.hosts, cluster.nodes, strict=True)))
        cluster.wait(lambda: all(self.run(name, f"test -e {_READY}").returncode == 0 for name in self.hosts), "no pods")
        cluster.wait_for_pods("app=sb", len(self.hosts))
        pods = cluster.get("pods", "-l", "app=sb")["items"]
        addresses = {item["metadata"]["name"]: item["status"]["podIP"] for item in pods}
        text = "127.0.0.1 localhost\n" + "".join(f"{addresses[name]} {name}\n" for name in self.hosts)
        cluster.wait(
            lambda: all(self.run(name, "cat >/etc/hosts", text).returncode == 0 for name in self.hosts), "lost"
        )

    def run(self, host: str, script: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A script in a pod; what it leaves in the background keeps no stream open."""
        return self.cluster.kubectl("exec", "-i", host, "--", "sh", "-c", script, stdin=stdin)

    def breaks(self, host: str, fault: str) -> None:
        """Puts a fault in, for good; one that waits for what a pod does not have ends with 124 and is named."""
        script = "cat >/run/fault.sh; timeout 60 sh -e /run/fault.sh >/run/log 2>&1 </dev/null"
        script += " || { code=$?; cat /run/log; exit $code; }"
        done = self.run(host, script, fault)
        assert done.returncode == 0, (host, fault, done.stdout, done.stderr)

    def remove(self) -> None:
        self.cluster.kubectl("delete", "pods", *self.hosts, "--grace-period=0", "--force")
        self.cluster.wait(lambda: not self.cluster.get("pods", "-l", "app=sb")["items"], "pods are left")

    def command(self, host: str, argv: Sequence[str], **environ: str) -> list[str]:
        """The words of ``kubectl exec`` for a command in a pod, as a process of the job there."""
        variables = [f"{name}={value}" for name, value in environ.items()]
        return self.cluster.inside(["kubectl", "exec", host, "--", "env", *variables, *argv])


@contextlib.contextmanager
def pod_hosts(cluster: Cluster, overrides: Mapping[str, Any], shows: Sequence[str] = ()) -> Iterator[PodHosts]:
    made = PodHosts(cluster, overrides, "4g", shows)
    try:
        yield made
    finally:
        made.remove()


def _pod(name: str, node: str, folder: pathlib.Path) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "localhost/machine:1",
        "imagePullPolicy": "Never",
        "command": ["/usr/bin/python3", "-m", "tests.hosts.kubernetes.pod_hosts", f"{folder}/{name}.json"],
        "env": [{"name": "PYTHONPATH", "value": f"{_MACHINE}{ROOT}"}, {"name": "PATH", "value": testbed.PATH}],
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": "machine", "mountPath": _MACHINE}, {"name": "usr", "mountPath": "/usr"}],
    }
    paths = {"machine": "/", "usr": "/usr"}
    spec = {
        "nodeName": node,
        "hostname": name,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": [{"name": key, "hostPath": {"path": path}} for key, path in paths.items()],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "sb"}}, "spec": spec}


def main() -> None:
    """Pid 1 of such a pod: makes a test host of it, and stays."""
    resolver = pathlib.Path("/etc/resolv.conf").read_text()
    testbed.mount("none", "/", None, testbed.MS_REC | testbed.MS_PRIVATE)
    os.chdir(_MACHINE)
    testbed.call("pivot_root", ".", ".")
    testbed.call("umount2", ".", testbed.MNT_DETACH)
    os.chdir("/")
    plan = json.loads(pathlib.Path(sys.argv[1]).read_text())
    host, shared = plan["host"], plan["shared"]
    testbed.host_files(host, shared)
    for place, folder in plan["shown"].items():
        testbed.bind(pathlib.Path(folder), pathlib.Path(place))
    pathlib.Path("/etc/resolv.conf").unlink(missing_ok=True)
    testbed.write("/etc/resolv.conf", resolver)
    testbed.apply(host, shared["client_key"])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what a fault leaves in the background and ends later
    testbed.write(_READY, "")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
