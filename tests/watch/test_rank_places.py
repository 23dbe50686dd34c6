"""CPUs, memory, device and adapter of a rank that do not fit each other: rehearsed, and of ranks that run.

The trees below /sys are emulated: two sockets with one CPU, one GPU and one adapter each. The masks of CPUs are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from doctor.remote.runtime import rank_place
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.rank_report import HostReport
from doctor.watch.rehearsal.judge import judge_running
from doctor.watch.rehearsal.rank_view import HostPlace, RankView, live_view
from tests.watch.test_odd_ranks import rank

ROOT = Path(__file__).resolve().parents[2]
SMALL_HOST = {
    "devices/system/node/node0/cpulist": "0",
    "devices/system/node/node1/cpulist": "1",
    "devices/system/node/has_memory": "0-1",
    "bus/pci/devices/0000:17:00.0/vendor": "0x10de",
    "bus/pci/devices/0000:17:00.0/class": "0x030200",
    "bus/pci/devices/0000:17:00.0/numa_node": "0",
    "bus/pci/devices/0000:b1:00.0/vendor": "0x10de",
    "bus/pci/devices/0000:b1:00.0/class": "0x030200",
    "bus/pci/devices/0000:b1:00.0/numa_node": "1",
    "bus/pci/devices/0000:b2:00.0/vendor": "0x8086",
    "class/net/eth0/device/numa_node": "0",
    "class/net/eth0/operstate": "up",
    "class/net/eth1/device/numa_node": "1",
    "class/net/eth1/operstate": "up",
    "class/net/eth2/device/numa_node": "1",
    "class/net/eth2/operstate": "down",
    "class/net/bond0/operstate": "up",
}


def lay(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return folder


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rank_place, "SYS", str(tmp_path / "sys"))
    return lay(tmp_path / "sys", SMALL_HOST)


def host_of(place: dict[str, Any]) -> HostPlace:
    return HostPlace(**{**place, "accelerators": [tuple(row) for row in place["accelerators"]]})


def view(place: HostPlace, cpus: str, memory: str = "0-1", **variables: str) -> RankView:
    return live_view("n1", 7, 0, {"LOCAL_RANK": "0", **variables}, place, (cpus, "0-1", memory))


def texts(view: RankView) -> list[str]:
    return [misfit.text for misfit in judge_running([view])]


def test_a_host_is_read_as_the_kernel_shows_it(sysfs: Path) -> None:
    place = host_of(rank_place.host_place())
    assert place.accelerators == [("0000:17:00.0", 0), ("0000:b1:00.0", 1)]
    assert place.interfaces == {"bond0": -1, "eth0": 0, "eth1": 1} and place.adapters == {}
    assert texts(view(place, "0")) == []
    far = "rank 0 on n1: its CPUs are at NUMA node 1, its device 0 (0000:17:00.0) at node 0"
    assert texts(view(place, "1")) == [far]
    assert texts(view(place, "1", CUDA_VISIBLE_DEVICES="1")) == []


def test_what_is_not_known_or_has_one_node_says_nothing(sysfs: Path) -> None:
    lay(sysfs, {"bus/pci/devices/0000:17:00.0/numa_node": "-1"})
    assert texts(view(host_of(rank_place.host_place()), "1")) == []
    lay(sysfs, {"bus/pci/devices/0000:17:00.0/numa_node": "7"})  # a node without CPUs
    assert texts(view(host_of(rank_place.host_place()), "1")) == []
    lay(sysfs, {"bus/pci/devices/0000:17:00.0/numa_node": "0\n<script>"})
    assert texts(view(host_of(rank_place.host_place()), "1")) == []
    place = host_of(rank_place.host_place())
    one = replace(place, cpus_of_nodes={"0": "0-1"}, accelerators=[("0000:17:00.0", 0)])
    assert texts(view(one, "1", memory="0")) == []
    assert texts(view(replace(one, cpus_of_nodes={"0": "0-1", "1": "", "²": "x"}), "1")) == []
    assert texts(live_view("n1", 7, 0, {"LOCAL_RANK": "0"}, None, ("1", "", ""))) == []
    assert texts(view(place, "")) == []


def test_memory_of_the_other_socket_alone(sysfs: Path) -> None:
    place = replace(host_of(rank_place.host_place()), accelerators=[])
    assert texts(view(place, "0", memory="1")) == [
        "rank 0 on n1: its CPUs are at NUMA node 0, its memory comes from node 1 alone"
    ]
    assert texts(view(place, "0-1", memory="1")) == [] == texts(view(place, "0", memory=""))
    # Fast memory on the chip is a node without CPUs, bound on purpose; and a node without memory has to use others.
    assert texts(view(replace(place, nodes_with_memory="0-2"), "0", memory="2")) == []
    assert texts(view(replace(place, nodes_with_memory="1"), "0", memory="1")) == []


def test_an_interface_at_the_other_node_counts_where_the_data_goes_over_it(sysfs: Path) -> None:
    place = host_of(rank_place.host_place())
    far = "rank 0 on n1: NCCL_SOCKET_IFNAME names eth1 only, and its device 0 is at NUMA node 0, as is eth0"
    assert texts(view(place, "0", NCCL_SOCKET_IFNAME="=eth1")) == [far]
    for value in ("eth", "^eth0", "bond0", "eth9", "=eth0", ""):
        assert texts(view(place, "0", NCCL_SOCKET_IFNAME=value)) == [], value
    rdma = replace(place, adapters={"mlx5_0": 0})  # there the interface only brings the ranks together
    assert texts(view(rdma, "0", NCCL_SOCKET_IFNAME="eth1")) == []
    assert texts(view(rdma, "0", NCCL_SOCKET_IFNAME="eth1", NCCL_IB_DISABLE="1")) == [far]
    no_other = replace(place, interfaces={"eth1": 1})
    assert texts(view(no_other, "0", NCCL_SOCKET_IFNAME="eth1")) == []


def test_an_adapter_whose_ports_are_down_is_no_better_choice(sysfs: Path) -> None:
    for name, node, state in (("mlx5_0", "0", "1: DOWN"), ("mlx5_1", "1", "4: ACTIVE")):
        place = f"class/infiniband/{name}"
        lay(sysfs, {f"{place}/device/numa_node": node, f"{place}/ports/1/state": state})
    place = host_of(rank_place.host_place())
    assert place.adapters == {"mlx5_1": 1}
    assert texts(view(place, "0", NCCL_IB_HCA="mlx5_1")) == []
    lay(sysfs, {"class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE"})
    assert (
        "NCCL_IB_HCA names mlx5_1 only" in texts(view(host_of(rank_place.host_place()), "0", NCCL_IB_HCA="mlx5_1"))[0]
    )


def test_ranks_that_run_are_judged_alike(sysfs: Path) -> None:
    place = host_of(rank_place.host_place())
    ranks = [
        rank(number, variables={"LOCAL_RANK": str(number)}, place=[cpus, "0-1", "0-1"], world=2)
        for number, cpus in enumerate(("0", "0"))
    ]
    [job] = find_odd({"n1": HostReport("n1", 4.0, True, True, ranks, True, [], place=place)})
    assert [text for text in job.notes if "NUMA" in text or "share" in text] == [
        "ranks 0-1 on n1 share CPU 0, of 2 CPUs of n1",
        "rank 1 on n1: its CPUs are at NUMA node 0, its device 1 (0000:b1:00.0) at node 1",
    ]


def test_a_process_is_read_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = lay(tmp_path, {"cpuset.cpus.effective": "0-7", "job/cpuset.cpus.effective": "2-3"})
    monkeypatch.setattr(rank_place, "CGROUPS", str(groups))
    files: dict[str, str] = {}
    read = rank_place.place_text
    monkeypatch.setattr(rank_place, "place_text", lambda path, limit=99: files.get(path) or read(path, limit))
    files["/proc/5/status"] = "Name:\tpython\nCpus_allowed_list:\t2\nMems_allowed_list:\t0-1"
    for group, permitted in (("0::/job/step", "2-3"), ("0::/other", "0-7"), ("0::/../x", ""), ("", "")):
        files["/proc/5/cgroup"] = group
        assert rank_place.process_place(5) == {"cpus": "2", "memory_nodes": "0-1", "permitted": permitted}
    lay(tmp_path, {"cpuset/slurm/cpuset.effective_cpus": "4-5"})
    files["/proc/5/cgroup"] = "9:name=systemd:/\n4:cpuset:/slurm\n0::/"
    assert rank_place.process_place(5)["permitted"] == "4-5"
    for first, nodes in (
        ("5615b05f0000 bind:1 file=/usr/bin/python3.11 mapped=2 N0=2", "1"),
        ("5615b05f0000 bind=static:0-1 file=/usr/bin/python3.11", "0-1"),
        ("5615b05f0000 default file=/usr/bin/bind:1", "0-1"),
        ("5615b05f0000 prefer:1 file=/usr/bin/python3.11", "0-1"),
    ):
        files["/proc/5/numa_maps"] = first
        assert rank_place.process_place(5)["memory_nodes"] == nodes


# ---- real processes, with their real masks


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[list[str]]:
    """A command line in whose mount namespace /sys shows two sockets."""
    if (os.cpu_count() or 1) < 2 or os.geteuid():
        pytest.skip("two CPUs and root are needed")
    lay(tmp_path / "sys", SMALL_HOST)
    mounts = [f"mount --bind {tmp_path}/sys/{name} /sys/{name}" for name in ("devices/system/node", "class/net")]
    mounts.append(f"mount --bind {tmp_path}/sys/bus/pci/devices /sys/bus/pci/devices")
    yield ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]


CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(("DOCTOR_", "SLURM_", "NCCL_"))}
RANK = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}


@pytest.mark.hosts
@pytest.mark.parametrize(("cpu", "expected"), [("1", {"NUMA node"}), ("0", set())])
def test_a_rehearsed_rank_that_taskset_binds(emulated: list[str], tmp_path: Path, cpu: str, expected: set[str]) -> None:
    (tmp_path / "train.py").write_text("")
    line = [
        sys.executable,
        "-m",
        "doctor",
        "rehearse",
        "--json",
        "--",
        "taskset",
        "-c",
        cpu,
        sys.executable,
        "train.py",
    ]
    environ = {**CLEAN, **RANK, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
    done = subprocess.run([*emulated, *line], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    document = json.loads(done.stdout)
    assert {misfit["subject"] for misfit in document["misfits"]} == expected, document
    assert (document["ranks"][0]["cpus"], done.returncode) == (cpu, 0)


@pytest.mark.hosts
def test_a_rank_that_runs_where_taskset_binds_it(emulated: list[str], tmp_path: Path) -> None:
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        ["taskset", "-c", "1", sys.executable, "-c", program],
        env={**CLEAN, **RANK}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline()
        line = [sys.executable, "-m", "doctor", "watch", "--attach", "--pid", str(process.pid), "--interval", "1"]
        environ = {**CLEAN, "PYTHONPATH": str(ROOT), "DOCTOR_HISTORY": "off"}
        done = subprocess.run(
            [*emulated, *line], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=110
        )
    assert "its CPUs are at NUMA node 1, its device 0 (0000:17:00.0) at node 0" in done.stdout, (
        done.stdout + done.stderr
    )
