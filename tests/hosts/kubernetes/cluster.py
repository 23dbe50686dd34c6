"""A real Kubernetes of one machine: etcd, apiserver, controller manager, scheduler, and kubelets with containerd.

The control plane runs in a network namespace of its own, the hub, and each node in namespaces of its own (`node.sh`).
Nodes and pods share one bridge. What stands in for parts that Debian does not have: `dns.py` answers for headless
services in the place of CoreDNS, and one rule of nftables leads to the API server in the place of kube-proxy.
The programs come from `build.sh`, which takes minutes once.

    python -m tests.hosts.kubernetes.cluster 4        a cluster to try things with, until it is interrupted
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.hosts.kubernetes.images import write_images

HERE = Path(__file__).parent
HUB = "10.77.0.1"
SERVER = f"https://{HUB}:6443"
PATIENCE = 300.0
WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
"""What a command begins with that ends where this process does, also by a signal. Each has a session of its own, so
that a busy machine gives the API server as much time as any other program."""
_ATTEMPTS, _BUSY = 4, re.compile("Client.Timeout|deadline exceeded|TLS handshake timeout")
_TOKENS = {"admin": "system:masters", "kubelet": "system:masters", "nobody": "people"}
_KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: {user}, user: {{token: "token-{user}"}}}}]
contexts: [{{name: test, context: {{cluster: test, user: {user}}}}}]
current-context: test
"""


def programs() -> Path:
    """The folder of the programs that `build.sh` makes."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("KUBERNETES_BIN") or Path(cache, "cluster-doctor", "kubernetes"))


def unavailable() -> str:
    """Why there can be no cluster here, or the empty string."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        return "a cluster needs root and Linux"
    absent = [name for name in ("etcd", "containerd", "runc", "ctr", "nft") if not shutil.which(name)]
    absent += [
        name for name in ("kube-apiserver", "kubelet", "pause", "device-plugin") if not (programs() / name).exists()
    ]
    return f"a cluster needs {', '.join(absent)}: tests/hosts/kubernetes/build.sh" if absent else ""


class Cluster:
    """A control plane, and ``nodes`` nodes that are ready."""

    def __init__(self, nodes: int = 4) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="doctor-kubernetes-", dir="/tmp"))
        self.folder.chmod(0o755)
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = itertools.count()
        try:
            self._write_files()
            self._start_hub()
            self._start_control_plane()
            for name in self.nodes:
                self.start_node(name)
            self.wait(self._nodes_ready, "nodes are not ready")
            self.wait(lambda: self.kubectl("get", "serviceaccount", "default").returncode == 0, "no service account")
        except BaseException:
            self.end()
            raise

    # ---- use

    def kubeconfig(self, user: str = "admin") -> Path:
        """A configuration of a user; of ``nobody`` no role says anything."""
        path = self.folder / f"{user}.conf"
        if not path.exists():
            path.write_text(_KUBECONFIG.format(server=SERVER, user=user))
        return path

    def environment(self, user: str = "admin") -> dict[str, str]:
        """What a client needs."""
        found = {name: value for name, value in os.environ.items() if name not in ("KUBERNETES_SERVICE_HOST",)}
        folder = self.folder / "path"
        return {**found, "KUBECONFIG": str(self.kubeconfig(user)), "PATH": f"{folder}:{found['PATH']}"}

    def run(
        self, argv: Sequence[str], user: str = "admin", timeout: float = 120.0, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A command where the API server and the pods can be reached."""
        return subprocess.run(
            self.inside(argv), input=stdin, capture_output=True, text=True, env=self.environment(user), timeout=timeout
        )

    def inside(self, argv: Sequence[str]) -> list[str]:
        """The command line that runs ``argv`` in the hub."""
        return ["nsenter", "-t", str(self._hub_pid), "-n", "--", *argv]

    def kubectl(self, *argv: str, user: str = "admin", stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Again, where the server of a busy machine had no time for the request; kubectl reads the types first."""
        for _ in range(_ATTEMPTS):
            done = self.run(["kubectl", "--request-timeout=20s", *argv], user, stdin=stdin)
            if not done.returncode or argv[0] == "create" or not _BUSY.search(done.stderr):
                break
        return done

    def get(self, *argv: str) -> Any:
        """What ``kubectl get`` says, as JSON."""
        done = self.kubectl("get", *argv, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def apply(self, *objects: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        done = self.kubectl("apply", "-f", "-", stdin=text)
        assert done.returncode == 0, done.stderr

    def wait(self, done: Callable[[], bool], problem: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while not done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{problem}: {self.folder}")
            time.sleep(0.25)

    def wait_for_pods(self, selector: str, count: int) -> list[str]:
        """The names of so many pods, once all of them run and are ready."""
        names: list[str] = []

        def ready() -> bool:
            items = self.get("pods", "-l", selector)["items"]
            names[:] = sorted(
                item["metadata"]["name"]
                for item in items
                if item["status"].get("containerStatuses")
                and all(state["ready"] for state in item["status"]["containerStatuses"])
            )
            return len(names) == count

        self.wait(ready, f"pods {selector} are not ready")
        return names

    def enter(self, node: str, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command in the namespaces of a node."""
        where = ["nsenter", "-t", str(self.node_pid(node)), "-m", "-n", "-p", "-u", "-i", "--"]
        return subprocess.run([*where, *argv], capture_output=True, text=True, timeout=60)

    def kill(self, program: str, number: signal.Signals = signal.SIGKILL) -> None:
        """A signal to a program of the control plane."""
        child = self._children[program]
        child.send_signal(number)
        if number == signal.SIGKILL:
            child.wait()

    def kubelet_pid(self, node: str) -> int:
        """Its number inside the node."""
        return int((self.folder / node / "kubelet.pid").read_text())

    def start_kubelet(self, node: str) -> None:
        """Again, once it was killed."""
        assert self.enter(node, "sh", str(self.folder / node / "kubelet.sh")).returncode == 0
        health = f"/api/v1/nodes/{node}/proxy/healthz"
        self.wait(lambda: self.kubectl("get", "--raw", health).returncode == 0, f"{node} is not ready again")
        self.wait(self._nodes_ready, f"{node} is not ready again")

    # ---- parts

    def start_apiserver(self) -> None:
        """Also again, once it was killed."""
        folder = self.folder
        self._start(
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--bind-address={HUB}",
            f"--advertise-address={HUB}",
            "--secure-port=6443",
            f"--cert-dir={folder}/pki",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={folder}/sa.key",
            f"--service-account-key-file={folder}/sa.key",
            "--endpoint-reconciler-type=none",
            "--enable-aggregator-routing=false",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
        )
        self.wait(lambda: self.kubectl("get", "--raw", "/readyz").returncode == 0, "the API server is not ready")

    def _start_control_plane(self) -> None:
        self._start("etcd", f"--data-dir={self.folder}/etcd", "--snapshot-count=100000", "--logger=zap")
        self.start_apiserver()
        common = (f"--kubeconfig={self.kubeconfig()}", "--leader-elect=false", "--bind-address=127.0.0.1")
        self._start(
            "kube-controller-manager",
            *common,
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--root-ca-file={self.folder}/pki/apiserver.crt",
            "--use-service-account-credentials=false",
            "--node-monitor-grace-period=12s",
            "--node-monitor-period=2s",
            "--pod-eviction-timeout=20s",
            again=True,
        )
        self._start("kube-scheduler", *common, again=True)
        self._start_python("dns", str(HERE / "dns.py"), f"{HUB}:53")

    def start_node(self, name: str) -> None:
        number = self.nodes.index(name) + 1
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child"]
        script = ["sh", str(HERE / "node.sh"), name, str(number), str(folder), str(programs()), str(self.folder)]
        with open(self.folder / f"{name}.log", "wb") as log:
            self._children[name] = subprocess.Popen(
                [*WITH_US, *spaces, *script],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wait(lambda: self.node_pid(name) > 0, f"{name} does not start", 10)
        link = f"v{next(self._numbers)}"
        commands = (
            f"ip link add {link} type veth peer name eth0 netns {self.node_pid(name)}",
            f"ip link set {link} master hub up",
        )
        for command in commands:
            subprocess.run(self.inside(command.split()), check=True)

    def node_pid(self, name: str) -> int:
        """Pid 1 of a node, as this machine numbers it; 0 before it has begun."""
        parent = self._children[name].pid
        text = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(text[0]) if text else 0

    def end(self) -> None:
        """Ends all of it; a node ends with its pid 1."""
        for name in list(reversed(self._children)):
            self._end_child(name)
        self._remove_control_groups()
        with contextlib.suppress(OSError):
            shutil.rmtree(self.folder)

    def _remove_control_groups(self) -> None:
        """Those of containers that were ended with their node, and not by its container runtime."""
        kept = self.folder.glob("*/containerd/io.containerd.grpc.v1.cri/*/*")
        names = [path.name for path in kept if path.parent.name in ("containers", "sandboxes")]
        for group in (path for name in names for path in Path("/sys/fs/cgroup").glob(f"*/k8s.io/{name}")):
            with contextlib.suppress(OSError):
                group.rmdir()

    def _end_child(self, name: str) -> None:
        child = self._children.pop(name)
        if child.stdout:
            child.stdout.close()
        child.kill()  # of `unshare --kill-child`: pid 1 of the node is killed by the kernel
        child.wait()

    def _start(self, program: str, *options: str, again: bool = False) -> None:
        """``again``: whenever it ends, as a controller does that a busy API server has not answered in its time."""
        found = programs() / program
        argv = [str(found) if found.exists() else program, *options]
        loop = ["sh", "-c", 'while :; do "$@"; sleep 1; done', program, *WITH_US] if again else []
        self._spawn(program, [*loop, *argv])

    def _start_python(self, name: str, *argv: str) -> None:
        self._spawn(name, [sys.executable, *argv])

    def _spawn(self, name: str, argv: list[str]) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self._children[name] = subprocess.Popen(
                [*WITH_US, *self.inside(argv)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment(),
                start_new_session=True,
            )

    def _start_hub(self) -> None:
        argv = [*WITH_US, "unshare", "--net", "sh", "-c", "echo; exec sleep infinity"]
        hub = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert hub.stdout
        hub.stdout.readline()  # its namespace is there
        self._children["hub"], self._hub_pid = hub, hub.pid
        script = f"ip link set lo up; ip link add hub type bridge; ip addr add {HUB}/16 dev hub; ip link set hub up"
        subprocess.run(self.inside(["sh", "-ec", script]), check=True)

    def _write_files(self) -> None:
        folder = self.folder
        (folder / "path").mkdir()
        own = programs() / "kubectl"
        if not shutil.which("kubectl"):
            (folder / "path" / "kubectl").symlink_to(own)
        (folder / "resolv.conf").write_text(f"nameserver {HUB}\n")
        lines = (f'token-{user},{user},{user},"{group}"\n' for user, group in _TOKENS.items())
        (folder / "tokens.csv").write_text("".join(lines))
        subprocess.run(["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True)
        write_images(folder / "images", programs() / "pause")
        self.kubeconfig()

    def _nodes_ready(self) -> bool:
        done = self.kubectl("get", "nodes", "--no-headers")
        return len(re.findall(r"\sReady\s", done.stdout)) == len(self.nodes)


def main() -> None:
    began = time.monotonic()
    cluster = Cluster(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
    try:
        print(f"{time.monotonic() - began:.1f} s; {cluster.folder}")
        print(f"KUBECONFIG={cluster.kubeconfig()} {' '.join(cluster.inside(['bash']))}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        cluster.end()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    main()
