"""`doctor check` of pods through the API server, beside SSH to the sshd in each of the same pods.

Run as root: python -m tests.bench.pods [PODS] [ROUNDS]. The two take turns, from one network, with the same checks; a
ratio is to SSH. The cluster is that of the tests (`tests/hosts/kubernetes`), all of it on this machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.fanout import with_bytecode
from tests.hosts.kubernetes.cluster import Cluster
from tests.transport.test_kubernetes_cluster import container, gang

NODES = 4
SSHD = """\
mkdir -p /root/.ssh /run/sshd /etc/ssh
cp /keys/key.pub /root/.ssh/authorized_keys; cp /keys/host /tmp/host; chmod 600 /tmp/host; chmod 700 /root /root/.ssh
exec /usr/sbin/sshd -D -e -h /tmp/host -f /dev/null -o UsePAM=no -o StrictModes=no -o MaxStartups=200
"""


Verdict = set[tuple[str, tuple[str, ...]]]
"""Each check that found something with the pods, and each that is unknown somewhere with none."""


def verdict(report: str | bytes) -> Verdict:
    outcomes = json.loads(report)["outcomes"]
    found = {
        (item["check"], tuple(sorted(host.partition(".")[0] for host in finding["hosts"])))
        for item in outcomes
        for finding in item["findings"]
    }
    return found | {(item["check"], ()) for item in outcomes if item["unknown"]}


def start(cluster: Cluster, count: int, keys: Path) -> list[str]:
    """Pods with sshd. Returns the names that their service gives them, by which OpenSSH's configuration knows them.

    Their own names alone mean nothing in another pod: as hosts of SSH they would be `host-name-unresolved`.
    """
    for name in ("key", "host"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(keys / name)]
        subprocess.run(command, check=True)
    objects = gang("many", count)
    spec: dict[str, Any] = objects[1]["spec"]["template"]["spec"]
    main = container(command=["sh", "-c", SSHD])
    main["volumeMounts"].append({"name": "keys", "mountPath": "/keys", "readOnly": True})
    spec["containers"] = [main]
    spec["volumes"].append({"name": "keys", "hostPath": {"path": str(keys)}})
    cluster.apply(*objects)
    for _ in range(5):
        try:
            names = cluster.wait_for_pods("app=many", count)
            break
        except TimeoutError as error:
            print(error, file=sys.stderr)
    know_neighbours(cluster)
    pods = {f"{item['metadata']['name']}.many": item["status"]["podIP"] for item in cluster.get("pods")["items"]}
    names = [f"{name}.many" for name in names]
    host_key = " ".join((keys / "host.pub").read_text().split()[:2])
    (keys / "known_hosts").write_text("".join(f"{name},{pods[name]} {host_key}\n" for name in names))
    lines = [
        f"Host {name}\n HostName {pods[name]}\n HostKeyAlias {name}\n User root\n IdentityFile {keys}/key\n"
        f" IdentitiesOnly yes\n UserKnownHostsFile {keys}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
        for name in names
    ]
    (keys / "config").write_text("".join(lines))
    return names


_LOOK = "for pod in $(pidof sshd); do nsenter -t $pod -n ip -br {0} show dev eth0; done"
_TELL = "for pod in $(pidof sshd); do nsenter -t $pod -n ip -force -batch {0}; done"


def know_neighbours(cluster: Cluster) -> None:
    """The pods know each other's link addresses: the kernel's table of those that it asks for is one for all of them.

    Where it overflows, pods that are well do not reach each other (64 pods have 4,032 entries; gc_thresh3 is 1,024).
    """
    lines = []
    for node in cluster.nodes:
        links, places = (cluster.enter(node, "sh", "-c", _LOOK.format(kind)).stdout for kind in ("link", "-4 addr"))
        for link, place in zip(links.splitlines(), places.splitlines(), strict=True):
            lines.append(
                f"neigh replace {place.split()[2].partition('/')[0]} lladdr {link.split()[2]} dev eth0 nud permanent"
            )
    (cluster.folder / "neighbours").write_text("\n".join(lines) + "\n")
    for node in cluster.nodes:
        cluster.enter(node, "sh", "-c", _TELL.format(cluster.folder / "neighbours"))


def ways(names: list[str], keys: Path) -> dict[str, list[str]]:
    """The command over SSH, and through the API server."""
    command = [sys.executable, "-m", "doctor", "check", "--json", "--no-history"]
    return {
        "SSH": [*command, ",".join(names), "-F", f"{keys}/config"],
        "Kubernetes": [*command, "--transport", "kubernetes", "--job", "many"],
    }


def once(cluster: Cluster, argv: list[str], environ: dict[str, str]) -> tuple[float, float, float, Verdict]:
    """Wall seconds, CPU seconds of the client with its children, those of all parts of the cluster, the verdict."""
    meter = "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]); "
    meter += "used = resource.getrusage(resource.RUSAGE_CHILDREN); "
    meter += "print(used.ru_utime + used.ru_stime, file=sys.stderr); sys.exit(code)"
    before, began = busy(), time.perf_counter()
    words = cluster.inside([sys.executable, "-c", meter, *argv])
    done = subprocess.run(words, env={**environ, **cluster.environment()}, capture_output=True, timeout=300)
    wall = time.perf_counter() - began
    assert done.returncode in (0, 10, 12), done.stderr
    return wall, float(done.stderr.splitlines()[-1]), busy() - before, verdict(done.stdout)


def busy() -> float:
    """CPU seconds that all of this machine has worked."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / 100


def main() -> None:
    count, rounds = (int(word) for word in [*sys.argv[1:], "64", "3"][:2])
    cluster = Cluster(NODES)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as bytecode:
        try:
            names = start(cluster, count, Path(folder))
            commands = ways(names, Path(folder))
            results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
            verdicts: dict[str, Verdict] = {}
            environ = with_bytecode(Path(bytecode))
            for number in range(rounds + 1):
                for name, argv in commands.items():
                    *figures, verdicts[name] = once(cluster, argv, environ)
                    if number:  # the first writes bytecode
                        results[name].append(tuple(figures))  # type: ignore[arg-type]
        finally:
            cluster.end()
    print(
        f"{count} pods on {NODES} nodes, medians of {rounds}; sick over SSH alone and over Kubernetes alone: "
        f"{sorted(verdicts['SSH'] - verdicts['Kubernetes'])}, {sorted(verdicts['Kubernetes'] - verdicts['SSH'])}"
    )
    base = [statistics.median(values) for values in zip(*results["SSH"], strict=True)]
    for name, rows in results.items():
        middle = [statistics.median(values) for values in zip(*rows, strict=True)]
        words = [f"{value:7.1f} s ({value / first:4.1f})" for value, first in zip(middle, base, strict=True)]
        print(f"{name:12} wall {words[0]}  client's CPU {words[1]}  CPU of the whole machine {words[2]}")


if __name__ == "__main__":
    main()
