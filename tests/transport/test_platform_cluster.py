"""Faults of the platform in real pods (`tests/hosts/kubernetes`): what is wrong is named, and a healthy gang is silent.

Runs with ``--full``, and whenever KUBERNETES_BIN names the folder that ``tests/hosts/kubernetes/build.sh`` has filled.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.hosts.kubernetes.cluster import Cluster, programs
from tests.transport.test_kubernetes_cluster import container, doctor, findings, gang, pod
from tests.transport.test_kubernetes_cluster import furnish as start_train
from tests.transport.test_manifests_cluster import advertise

pytestmark = pytest.mark.cluster(2)
LIMITS = ("memory-short", "cpus-too-few")
LISTEN = (
    "import socket, time; kept = [socket.create_server(('', port)) for port in (15001, 15006)]; "
    "open('/dev/shm/ready', 'w').close(); time.sleep(600)"
)


def furnish(cluster: Cluster) -> None:
    start_train(cluster)
    cluster.wait(lambda: resolves(cluster, "train-0", "train-2.train"), "names do not resolve")


def resolves(cluster: Cluster, pod: str, name: str) -> bool:
    return cluster.kubectl("exec", pod, "--", "getent", "hosts", name).returncode == 0


def checked(cluster: Cluster, *words: str, command: str = "check") -> dict[str, dict[str, Any]]:
    """The first finding of each check that failed."""
    done = doctor(cluster, command, *words, "--json", "--no-history")
    assert done.returncode in (0, 10, 11, 12), done.stdout + done.stderr
    return findings(done)


def test_a_healthy_gang_is_silent(cluster: Cluster) -> None:
    names = "mesh-proxy-intercepts,container-devices-not-allotted,host-name-unresolved,interface-mtu-differs"
    done = doctor(cluster, "check", "--job", "train", "-s", names, "--json", "--no-history")
    assert done.returncode == 0, done.stdout + done.stderr
    states = {item["check"]: item["status"] for item in json.loads(done.stdout)["outcomes"]}
    assert states["mesh-proxy-intercepts"] == states["host-name-unresolved"] == "passed", states


def test_the_proxy_of_a_mesh(cluster: Cluster) -> None:
    script = f'setsid python3 -c "{LISTEN}" >/dev/null 2>&1 </dev/null &'
    assert cluster.kubectl("exec", "train-1", "--", "sh", "-c", script).returncode == 0
    cluster.wait(
        lambda: cluster.kubectl("exec", "train-1", "--", "ls", "/dev/shm/ready").returncode == 0, "nothing listens"
    )
    found = checked(cluster, "--job", "train", "-s", "mesh-proxy-intercepts")["mesh-proxy-intercepts"]
    assert found["hosts"] == ["train-1"] and found["values"]["mesh"] == "Istio"


def test_a_service_that_hides_pods_until_they_are_ready(cluster: Cluster) -> None:
    """The program becomes ready once it has met the others, whom it cannot find."""
    item = gang("hidden", 3)
    item[0]["spec"]["publishNotReadyAddresses"] = False
    main = item[1]["spec"]["template"]["spec"]["containers"][0]
    main["readinessProbe"] = {"exec": {"command": ["false"]}}
    cluster.apply(*item)

    def all_run() -> bool:
        pods = cluster.get("pods", "-l", "app=hidden")["items"]
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 3

    cluster.wait(all_run, "the pods do not run")
    finding = checked(cluster, "--job", "hidden", "-s", "host-name-unresolved")["host-name-unresolved"]
    assert finding["values"]["first"] == "hidden-0.hidden" and finding["values"]["count"] == 3, finding


def spread(name: str, size: int) -> list[dict[str, Any]]:
    """A gang with as many pods on each node."""
    item = gang(name, size)
    even = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    constraint = {**even, "labelSelector": {"matchLabels": {"app": name}}}
    item[1]["spec"]["template"]["spec"]["topologySpreadConstraints"] = [constraint]
    return item


def test_pods_with_the_network_of_their_nodes(cluster: Cluster) -> None:
    """They ask the name servers of the nodes, unless their policy says otherwise."""
    for name, policy in (("of-node", "ClusterFirst"), ("of-cluster", "ClusterFirstWithHostNet")):
        item = spread(name, 2)
        item[1]["spec"]["template"]["spec"] |= {"hostNetwork": True, "dnsPolicy": policy}
        cluster.apply(*item)
        cluster.wait_for_pods(f"app={name}", 2)
    cluster.wait(lambda: resolves(cluster, "of-cluster-0", "of-cluster-1.of-cluster"), "names do not resolve")
    assert checked(cluster, "--job", "of-cluster", "-s", "host-name-unresolved,host-name-repeated") == {}
    finding = checked(cluster, "--job", "of-node", "-s", "host-name-unresolved")["host-name-unresolved"]
    assert finding["values"]["names"] == ["of-node-0.of-node", "of-node-1.of-node"], finding
    cluster.kubectl("delete", "statefulset", "of-node", "of-cluster", "--wait=false")


def test_labels_of_nodes_are_the_switches_of_the_network_test(cluster: Cluster) -> None:
    """What lies between two switches is named by them, and not by each pair of pods."""
    cluster.apply(*spread("racks", 4))
    cluster.wait_for_pods("app=racks", 4)
    for number, node in enumerate(cluster.nodes):
        cluster.kubectl("label", "node", node, f"network.topology.nvidia.com/leaf=leaf-{number}", "--overwrite")
    rules = "table bridge switches { chain drops { type filter hook forward priority 0; "
    rules += "ip saddr 10.77.11.0/24 ip daddr 10.77.12.0/24 meta l4proto { tcp, udp, icmp } drop; }; }"
    assert cluster.enter(cluster.nodes[0], "sh", "-c", f"echo '{rules}' | nft -f -").returncode == 0
    try:
        # Once more, where a starved machine kept the answers from coming: that is unknown, and rightly so.
        found = checked(cluster, "--job", "racks", command="net") or checked(cluster, "--job", "racks", command="net")
    finally:
        cluster.enter(cluster.nodes[0], "nft", "delete", "table", "bridge", "switches")
        cluster.kubectl("label", "nodes", "--all", "network.topology.nvidia.com/leaf-")
    assert any("leaf-0" in finding["message"] and "leaf-1" in finding["message"] for finding in found.values()), found


def test_networks_that_multus_was_to_attach(cluster: Cluster) -> None:
    """The annotations as Multus writes them; the interface is one that a test makes, and takes away."""
    item = gang("nets", 2)
    status = [{"name": "default/rdma-a", "interface": "net1", "ips": ["192.168.0.3"], "dns": {}}]
    item[1]["spec"]["template"]["metadata"]["annotations"] = {
        "k8s.v1.cni.cncf.io/networks": "rdma-a",
        "k8s.v1.cni.cncf.io/network-status": json.dumps(status, indent=4),
    }
    main = item[1]["spec"]["template"]["spec"]["containers"][0]
    main["securityContext"] = {"privileged": True}
    add = "ip link add net1 type veth peer name other1; ip addr add 192.168.0.3/24 dev net1"
    main["command"] = ["sh", "-c", f"case $HOSTNAME in *-0) {add} ;; esac; touch /tmp/ready; exec sleep 100000"]
    main["readinessProbe"] = {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1}
    cluster.apply(*item)
    cluster.wait_for_pods("app=nets", 2)
    finding = checked(cluster, "--job", "nets", "-s", "pod-network-missing")["pod-network-missing"]
    assert finding["hosts"] == ["nets-1"] and finding["values"]["interface"] == "net1", finding


def test_devices_that_were_not_allotted(cluster: Cluster) -> None:
    """The device plugin names one GPU; the container has two device files."""
    script = "mknod -m 666 /dev/nvidia0 c 195 0; mknod -m 666 /dev/nvidia1 c 195 1"
    item = gang("gpu", 1)
    main = item[1]["spec"]["template"]["spec"]["containers"][0]
    main["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "GPU-8f2c1a3e-0000-4f1f-9c7e-0123456789ab"}]
    main["securityContext"] = {"privileged": True}
    main["command"] = ["sh", "-c", f"{script}; exec sleep 100000"]
    cluster.apply(*item)
    cluster.wait_for_pods("app=gpu", 1)
    found = checked(cluster, "gpu-0", "-s", "container-devices-not-allotted")["container-devices-not-allotted"]
    assert (found["values"]["observed"], found["values"]["expected"]) == (2, 1), found


def test_devices_that_kubernetes_allotted_and_the_container_has_not(cluster: Cluster) -> None:
    """What the pod itself says, virtual NPUs included; no variable names a device. One pod has what it requests."""
    for resource in ("nvidia.com~1gpu", "nvidia.com~1mig-1g.10gb", "huawei.com~1Ascend310P-4c"):
        for node in cluster.nodes:
            advertise(cluster, node, resource)
    wanted = {
        "many": ({"nvidia.com/gpu": "1"}, "mknod /dev/nvidia0 c 195 0; mknod /dev/nvidia1 c 195 1"),
        "none": ({"nvidia.com/gpu": "2"}, ":"),
        "slices": ({"nvidia.com/mig-1g.10gb": "2"}, ":"),
        "exact": ({"nvidia.com/gpu": "1"}, "for name in 0 ctl -uvm; do mknod /dev/nvidia$name c 195 0; done"),
        "virtual": ({"huawei.com/Ascend310P-4c": "1"}, "mknod /dev/davinci101 c 195 0"),
    }
    for name, (limits, script) in wanted.items():
        main = container(command=["sh", "-c", f"{script}; exec sleep 100000"])
        main |= {"resources": {"limits": limits}, "securityContext": {"privileged": True}}
        item = pod(name, main)
        item["metadata"]["annotations"] = {"huawei.com/AscendReal": "Ascend310P-4c-100-1"} if name == "virtual" else {}
        cluster.apply(item)
        cluster.wait_for_pods(f"app={name}", 1)
    names = "container-devices-missing,container-devices-not-allotted"
    done = doctor(cluster, "check", ",".join(wanted), "-s", names, "--json", "--no-history")
    found = {(item["check"], *one["hosts"]): one for item in outcomes(done) for one in reversed(item["findings"])}
    assert {("container-devices-not-allotted", "many"), ("container-devices-missing", "none")} <= set(found), found
    assert found["container-devices-missing", "slices"]["values"]["count"] == 2, found
    assert found["container-devices-missing", "virtual"]["values"]["npus"] == [100], found
    assert found["container-devices-not-allotted", "virtual"]["values"]["devices"] == [101], found
    libraries = [one["message"] for (_, host), one in found.items() if host == "exact"]
    assert all("of their driver" in text for text in libraries), libraries


GPUS, NPUS = "nvidia.com/gpu.shared", "huawei.com/Ascend910"


def offer(cluster: Cluster, node: str, resource: str, *words: str) -> None:
    """Starts a device plugin on the node (`tests/hosts/kubernetes/device_plugin.go`), and waits for its devices."""
    line = " ".join((str(programs() / "device-plugin"), resource, "4", *words))
    # Where this file is, the kubelet's stub takes it that the kubelet looks for sockets in another folder.
    start = f"rm -f /var/lib/kubelet/device-plugins/DEPRECATION; setsid {line} >/var/log/plugin 2>&1 </dev/null &"
    assert cluster.enter(node, "sh", "-c", start).returncode == 0

    def offered() -> bool:
        return cluster.get("node", node)["status"]["allocatable"].get(resource) == "4"

    cluster.wait(offered, f"{node} offers no {resource}")


def test_devices_that_a_device_plugin_gives(cluster: Cluster) -> None:
    """The kubelet's own allotment: one node's plugins are right, and of the other's one gives too many, one too few."""
    right, wrong = cluster.nodes
    for node, more, fewer in ((right, "0", "0"), (wrong, "1", "-1")):
        offer(cluster, node, GPUS, "/dev/nvidia", "NVIDIA_VISIBLE_DEVICES", more)
        offer(cluster, node, NPUS, "/dev/davinci", "ASCEND_VISIBLE_DEVICES", fewer)
    pods = {
        "two-gpus": (right, {GPUS: "2"}),
        "two-npus": (right, {NPUS: "2"}),
        "more-gpus": (wrong, {GPUS: "2"}),
        "fewer-npus": (wrong, {NPUS: "2"}),
    }
    for name, (node, limits) in pods.items():
        main = {**container(), "resources": {"limits": limits}}
        cluster.apply(pod(name, main, nodeSelector={"kubernetes.io/hostname": node}))
        cluster.wait_for_pods(f"app={name}", 1)
    names = "container-devices-missing,container-devices-not-allotted"
    done = doctor(cluster, "check", ",".join(pods), "-s", names, "--json", "--no-history")
    found = [(item["check"], *one["hosts"], one) for item in outcomes(done) for one in item["findings"]]
    counts = [(check, host, one["values"]["observed"]) for check, host, one in found if "expected" in one["values"]]
    assert sorted(counts) == [
        ("container-devices-missing", "fewer-npus", "1 NPU device files"),
        ("container-devices-not-allotted", "more-gpus", 3),
    ], found


def outcomes(done: Any) -> list[dict[str, Any]]:
    assert done.stdout, done.stderr
    return list(json.loads(done.stdout)["outcomes"])


def test_a_policy_that_blocks_the_ports_of_the_job_is_tried(cluster: Cluster) -> None:
    """What a plugin of the network makes of a NetworkPolicy: packets to a port are dropped before the pod."""
    node = cluster.get("pod", "train-0")["spec"]["nodeName"]
    address = cluster.get("pod", "train-0")["status"]["podIP"]
    rules = "table bridge policies { chain drops { type filter hook forward priority 0; "
    rules += f"ip daddr {address} tcp dport 29500 drop; }}; }}"
    made = cluster.enter(node, "sh", "-c", f"echo '{rules}' | nft -f -")
    assert made.returncode == 0, made.stderr
    try:
        found = checked(cluster, "--job", "train", "--master-port", "29500", command="net")
    finally:
        cluster.enter(node, "nft", "delete", "table", "bridge", "policies")
    assert any(name.startswith("net-") for name in found), found


def test_limits_of_memory_and_cpus(cluster: Cluster) -> None:
    """Four ranks in a container that has less than they need; a pod without limits is not accused."""
    main = {**container(), "resources": {"limits": {"memory": "700Mi", "cpu": "500m"}}}
    cluster.apply(pod("limited", main))
    cluster.wait_for_pods("app=limited", 1)
    line = ("--", "torchrun", "--nproc-per-node", "4", "train.py")
    options = ("-s", "memory-short,cpus-too-few", "--json", "--no-history", *line)
    found = findings(doctor(cluster, "check", "train-0,limited", *options))
    assert {name: item["hosts"] for name, item in found.items()} == {name: ["limited"] for name in LIMITS}, found
    assert found["memory-short"]["values"]["total"] == "700 MiB", found
    assert found["cpus-too-few"]["values"]["observed"] == "0.5", found


def test_the_limit_of_open_files_is_that_of_the_nodes_container_runtime(cluster: Cluster) -> None:
    """Containers that it starts from now on have it, whatever the limit of the node's other processes."""
    node = cluster.nodes[1]
    limit = cluster.enter(
        node, "sh", "-c", "prlimit --pid $(pidof containerd) --nofile --raw --noheadings -o SOFT,HARD"
    )
    assert limit.returncode == 0, limit.stderr
    try:
        done = cluster.enter(node, "sh", "-c", "prlimit --pid $(pidof containerd) --nofile=1024:1024")
        assert done.returncode == 0, done.stderr
        cluster.apply(pod("files", container(), nodeName=node))
        cluster.wait_for_pods("app=files", 1)
    finally:
        kept = limit.stdout.split()
        cluster.enter(node, "sh", "-c", f"prlimit --pid $(pidof containerd) --nofile={kept[0]}:{kept[1]}")
    done = doctor(cluster, "check", "train-0,files", "-s", "open-files-limit-low", "--json", "--no-history")
    finding = findings(done)["open-files-limit-low"]
    assert finding["hosts"] == ["files"] and finding["values"]["observed"] == 1024, finding


def test_an_mtu_that_differs(cluster: Cluster) -> None:
    """Of the plugin on one node: here of one pod's own interface."""
    done = change_mtu(cluster, "train-2", 1400)
    try:
        assert done.returncode == 0, done.stderr
        found = checked(cluster, "--job", "train", "-s", "interface-mtu-differs")
        assert found["interface-mtu-differs"]["hosts"] == ["train-2"]
    finally:
        change_mtu(cluster, "train-2", 1500)


def change_mtu(cluster: Cluster, pod: str, size: int) -> Any:
    """In the pod's network, from its node."""
    item = cluster.get("pod", pod)
    address = item["status"]["podIP"]
    script = (
        "for process in /proc/[0-9]*; do "
        f"nsenter -t ${{process#/proc/}} -n ip -4 addr show eth0 2>/dev/null | grep -q ' {address}/' || continue; "
        f"exec nsenter -t ${{process#/proc/}} -n ip link set eth0 mtu {size}; done; exit 9"
    )
    return cluster.enter(item["spec"]["nodeName"], "sh", "-c", script)
