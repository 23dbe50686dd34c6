"""The report of pods through the API server is that over SSH to the sshd in the same pods, on a real control plane.

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import pytest

from tests.bench.pods import Verdict, start, verdict, ways
from tests.hosts.kubernetes.cluster import Cluster

pytestmark = pytest.mark.cluster(2)
PODS = 6


@pytest.fixture(scope="module")
def commands(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("keys")
    return ways(start(cluster, PODS, folder), folder)


def both(cluster: Cluster, commands: dict[str, list[str]]) -> tuple[Verdict, Verdict]:
    """Once more, where a starved machine left something unknown."""
    for _ in range(2):
        done = {way: cluster.run(argv, timeout=300) for way, argv in commands.items()}
        over_ssh, over_kubernetes = (verdict(one.stdout) for one in done.values())
        if over_ssh == over_kubernetes:
            break
    return over_ssh, over_kubernetes


def what_is_there(cluster: Cluster) -> dict[str, list[str]]:
    """The objects of the cluster, and the files and processes of a pod, beside those of its sshd."""
    kinds = ("pods", "jobs", "secrets", "configmaps", "services", "serviceaccounts", "roles", "rolebindings")
    state = {kind: [item["metadata"]["name"] for item in cluster.get(kind, "-A")["items"]] for kind in kinds}
    script = "find / -xdev -type f -not -path '/proc/*' | sort; cat /proc/[0-9]*/comm | sort -u | grep -v sshd"
    inside = cluster.kubectl("exec", "many-1", "--", "sh", "-c", f"{script}; find /dev/shm -type f")
    return {**state, "many-1": inside.stdout.splitlines()}


def test_healthy_pods_of_which_nothing_is_left_behind(cluster: Cluster, commands: dict[str, list[str]]) -> None:
    before = what_is_there(cluster)
    assert both(cluster, commands) == (set(), set())
    cluster.wait(lambda: what_is_there(cluster) == before, "something is left", 30)


def test_one_whose_own_name_leads_to_loopback(cluster: Cluster, commands: dict[str, list[str]]) -> None:
    script = "(echo 127.0.0.1 many-3; cat /etc/hosts) >/tmp/hosts && cat /tmp/hosts >/etc/hosts"
    done = cluster.kubectl("exec", "many-3", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    over_ssh, over_kubernetes = both(cluster, commands)
    assert over_ssh == over_kubernetes
    assert {hosts for _, hosts in over_kubernetes} == {("many-3",)}, over_kubernetes
