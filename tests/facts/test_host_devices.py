"""RDMA adapters, the kernel's log, host settings, mounts and snapshots: what is read, and what is made of noise."""

from __future__ import annotations

import errno
import json
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from doctor.collect.collector.questions import HELPERS
from doctor.collect.collector_request import function_source
from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.engine.quantities import ago_text
from doctor.facts import snapshot
from doctor.facts.gpu import GpuCards, GpuInventory, NvidiaSmi, detect_gpus
from doctor.facts.host_settings import HostSettings, NetworkCards
from doctor.facts.host_state import HostState
from doctor.facts.kernel_log import KernelLog, read_kernel_log
from doctor.facts.mounts import MountAnswers, MountTable, try_mounts
from doctor.facts.nvlink import GpuTopology, NvLinks
from doctor.facts.rdma import ERROR_COUNTERS, RdmaPorts, chosen_ports, read_rdma
from doctor.facts.snapshot import HostSnapshot, read_snapshot
from doctor.remote.runtime.reading import names_in, read_text
from doctor.remote.runtime.streams import kernel_records
from tests.checks.gpu_hosts import port, rdma
from tests.examples import examples
from tests.facts.answers import answered, learned, read_outputs
from tests.facts.garbage import ANYTHING, JSON, runs_on_python_3_6


@pytest.mark.parametrize("function", [detect_gpus, read_kernel_log, read_rdma, read_snapshot, try_mounts])
def test_what_is_sent_runs_on_old_interpreters(function: Callable[..., Any]) -> None:
    assert runs_on_python_3_6(function)


def test_it_answers_on_this_machine() -> None:
    """Whatever the machine has: an answer that its fact reads, or the reason why there is none."""
    for fact in (KernelLog, RdmaPorts, HostSnapshot, HostState, GpuCards):
        assert fact.probe.function is not None
        namespace: dict[str, Any] = {helper.__name__: helper for helper in HELPERS}
        exec(function_source(fact.probe.function), namespace)
        value = answered(fact, namespace[fact.probe.function.__name__]({}))
        assert isinstance(value, (fact, Absent)), value


@given(JSON)
@settings(max_examples=examples(40))
def test_any_other_answer_is_unreadable(value: Any) -> None:
    for fact in (KernelLog, RdmaPorts, MountAnswers, HostSnapshot, HostState, GpuCards):
        assert isinstance(answered(fact, value), (fact, Absent))


@given(ANYTHING)
@settings(max_examples=examples(60))
def test_noise_is_never_a_healthy_gpu(noise: str) -> None:
    inventory = read_outputs(GpuInventory, one=Output(out=noise))
    assert isinstance(inventory, Absent) or not inventory.gpus
    for fact in (NvLinks, GpuTopology):
        assert isinstance(read_outputs(fact, one=Output(out=noise)), Absent)
    assert read_outputs(NvidiaSmi, one=Output(out=noise)).kind


@pytest.mark.parametrize("fact", [RdmaPorts, KernelLog])
def test_a_host_without_the_path_has_none(fact: type[Fact]) -> None:
    why = read_outputs(fact, one=Output(ended="absent", err="does not exist"))
    assert type(why) is Absent


def test_who_may_not_read_the_log_does_not_know_it() -> None:
    why = answered(KernelLog, {"error": errno.EPERM, "text": "Operation not permitted"})
    assert isinstance(why, Unreadable)
    assert "--sudo" in str(why)
    assert type(answered(KernelLog, {"error": errno.ENOENT, "text": "No such file"})) is Absent
    assert isinstance(answered(KernelLog, {"error": errno.EIO, "text": "Input/output error"}), Unreadable)


def test_the_log_is_filtered_on_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records have the form of Documentation/ABI/testing/dev-kmsg; lines that continue one begin with a blank."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    at = int((uptime - 1) * 1e6)
    log = tmp_path / "kmsg"
    log.write_text(
        "6,1,0,-;Linux version 5.15.0-1053-nvidia\n SUBSYSTEM=cpu\n"
        f"3,2,{at},-,caller=T1;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n"
        f"6,3,{at},-;mlx5_core 0000:3b:00.0 eth1: Link up\n"
    )
    source = function_source(read_kernel_log).replace("/dev/kmsg", str(log))
    namespace: dict[str, Any] = {"read_text": read_text, "kernel_records": kernel_records}  # of the collector's runtime
    exec(source, namespace)
    kernel_log = answered(KernelLog, namespace["read_kernel_log"]({}))
    ((age, text),) = [(line.age, line.text) for line in kernel_log.lines]
    assert 0.5 < age < 60
    assert text == "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."


def test_ages() -> None:
    assert [ago_text(seconds) for seconds in (0, 89, 91, 5401, 86400, 200000)] == [
        "0 s ago",
        "89 s ago",
        "2 min ago",
        "2 h ago",
        "24 h ago",
        "2 days ago",
    ]


def test_a_real_port() -> None:
    """An H100 host: https://github.com/leptonai/gpud, infiniband/class/testdata/sys-class-infiniband-h100.0."""
    ports = {"number": 1, "state": "4: ACTIVE", "physical": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    device = {"name": "mlx5_0", "type": "MT4129", "board": "MT_0000000838", "firmware": "28.41.1000"}
    value = answered(RdmaPorts, [{**device, "ports": [{**ports, "layer": "InfiniBand"}]}])
    port_state = value.ports["mlx5_0:1"]
    assert (port_state.is_active, port_state.has_link, port_state.gigabits, port_state.growth) == (
        True,
        True,
        400.0,
        {},
    )


def test_the_tree_of_sysfs_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "mlx5_0/ports/1"
    files = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "link_layer": "Ethernet",
        "gids/0": "0000:0000:0000:0000:0000:0000:0000:0000",
        "gids/3": "0000:0000:0000:0000:0000:ffff:0a60:0001",
        "gid_attrs/types/3": "RoCE v2",
        "gid_attrs/ndevs/3": "none0",
        "counters/symbol_error": "3",
        "hw_counters/out_of_sequence": "12",
        "counters/port_xmit_data": "999",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    (tmp_path / "mlx5_0/fw_ver").write_text("20.35.1012\n")
    (tmp_path / "mlx5_0/sys_image_guid").write_text("506b:4b03:00f9:a1ba\n")
    (tmp_path / "mlx5_0/0000:08:00.0").mkdir()
    (tmp_path / "mlx5_0/device").symlink_to("0000:08:00.0")
    source = function_source(read_rdma).replace("/sys/class/infiniband", str(tmp_path)).replace("sleep(1)", "sleep(0)")
    namespace: dict[str, Any] = {"names_in": names_in, "read_text": read_text}
    exec(source, namespace)
    value = answered(RdmaPorts, namespace["read_rdma"]({}))
    port_state = value.ports["mlx5_0:1"]
    assert [(gid.index, gid.kind, gid.is_ipv4) for gid in port_state.gids] == [(3, "RoCE v2", True)]
    assert port_state.before == port_state.after == {"symbol_error": 3, "out_of_sequence": 12}
    assert port_state.interface == "none0"
    assert (value.devices[0].slot, value.devices[0].chip) == ("0000:08:00.0", "506b:4b03:00f9:a1ba")


COUNTERS = {
    # Linux, drivers/infiniband/hw/efa/efa_verbs.c; values as in linux-rdma/perftest issue 113: traffic, and no fault.
    "efa": {"rx_drops": (0, 0), "send_wrs": (1, 9), "tx_pkts": (1, 90), "unresponsive_remote_events": (0, 0)},
    "efa, a peer that is gone": {"unresponsive_remote_events": (0, 2), "rx_bytes": (2, 90)},
    # drivers/infiniband/hw/bnxt_re/hw_counters.c
    "bnxt_re": {"to_retransmits": (7, 7), "rx_pkts": (1, 900), "rnr_naks_rcvd": (1, 5), "rx_cnp_pkts": (1, 80)},
    "bnxt_re, packets lost": {"to_retransmits": (7, 19), "seq_err_naks_rcvd": (3, 9)},
    # drivers/infiniband/hw/mana/counters.c
    "mana": {"requester_timeout": (2, 2), "responder_rnr_nak": (1, 5), "received_cnps": (1, 80), "rx_packets": (1, 9)},
    "mana, packets lost": {"requester_timeout": (2, 4), "responder_oos": (0, 3)},
    # drivers/infiniband/hw/hns/hns_roce_main.c
    "hns": {"rx_err_pkt": (4, 4), "rx_rc_pkt": (1, 90), "posted_mbx": (1, 5), "mr_reg_err": (0, 1)},
    "hns, bad packets": {"rx_err_pkt": (4, 6)},
    # drivers/infiniband/hw/irdma/verbs.c
    "irdma": {"ip4InDiscards": (1, 8), "tcpRetransSegs": (0, 2), "cnpHandled": (1, 80), "ip4OutNoRoutes": (0, 0)},
    "irdma, no route": {"ip4OutNoRoutes": (0, 7)},
    # an H100 host of leptonai/gpud: infiniband/class/testdata
    "mlx5": {"duplicate_request": (0, 4), "roce_adp_retrans": (0, 0), "rx_dct_connect": (0, 3), "lifespan": (10, 10)},
}


@pytest.mark.parametrize(("name", "grown"), [(name, ", " in name) for name in COUNTERS])
def test_the_counters_of_every_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, grown: bool) -> None:
    port = tmp_path / "sys/rdmap16s27/ports/1"
    (port / "hw_counters").mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")

    def count(place: int) -> None:
        for counter, values in COUNTERS[name].items():
            (port / "hw_counters" / counter).write_text(f"{values[place]}\n")

    count(0)
    monkeypatch.setattr(time, "sleep", lambda seconds: count(1))
    namespace: dict[str, Any] = {"names_in": names_in, "read_text": read_text}
    exec(function_source(read_rdma).replace("/sys/class/infiniband", str(tmp_path / "sys")), namespace)
    port_state = answered(RdmaPorts, namespace["read_rdma"]({})).ports["rdmap16s27:1"]
    assert bool(port_state.growth) == grown


def test_every_counter_that_is_judged_is_read() -> None:
    assert set(ERROR_COUNTERS) <= set(re.findall(r"['\"](\w+)['\"]", function_source(read_rdma)))


@pytest.mark.parametrize(
    ("setting", "chosen", "absent"),
    [
        ("mlx5", ("mlx5_0:1", "mlx5_1:1"), ()),
        ("=mlx5_1", ("mlx5_1:1",), ()),
        ("=mlx5_1:1,mlx5_0", ("mlx5_0:1", "mlx5_1:1"), ()),
        ("^mlx5_1", ("mlx5_0:1",), ()),
        ("^=mlx5_0:1", ("mlx5_1:1",), ()),
        ("=mlx5", (), ("mlx5",)),
        ("hfi1", (), ("hfi1",)),
    ],
)
def test_the_choice_of_nccl(setting: str, chosen: tuple[str, ...], absent: tuple[str, ...]) -> None:
    """NCCL User Guide, NCCL_IB_HCA."""
    assert chosen_ports(setting, rdma(port(), port()).ports) == (chosen, absent)


SETTINGS = {
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
    "/sys/devices/system/cpu/cpufreq/policy10/scaling_governor": "powersave\n",
    "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "/proc/sys/kernel/numa_balancing": "1\n",
    "/sys/devices/system/node/possible": "0-1,4\n",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm \n",
    "/proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/sda2 partition 2097148 0 -2\n",
    "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=UUID=x ro iommu=pt pci=realloc=off quiet\n",
    "/proc/sys/kernel/osrelease": "5.15.0-1053-nvidia\n",
    "/sys/class/dmi/id/chassis_type": "23\n",
}


def test_host_settings() -> None:
    value = learned(HostSettings, {path: Output(out=text) for path, text in SETTINGS.items()})
    assert value.governors == ("performance", "powersave")
    assert (value.huge_pages, value.numa_nodes, value.numa_balancing) == ("madvise", 3, 1)
    assert value.command_line == ("iommu=pt", "pci=realloc=off")
    assert value.swap_devices == ("/dev/sda2",)
    assert value.is_portable is False


def test_an_arm_host() -> None:
    """Kunpeng: Linux, admin-guide/kernel-parameters.txt (iommu.passthrough, kpti); openEuler (smmu.bypassdev)."""
    line = (
        "BOOT_IMAGE=/vmlinuz-4.19.90 root=/dev/mapper/openeuler-root ro iommu.passthrough=1 smmu.bypassdev=0x1000:0x17"
    )
    arm = {
        **SETTINGS,
        "/proc/cmdline": f"{line} kpti=off pci=realloc crashkernel=1024M,high\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "arch_sys_counter\n",
        "/sys/devices/system/node/possible": "0-3\n",
    }
    value = learned(HostSettings, {path: Output(out=text) for path, text in arm.items()})
    assert value.command_line == ("iommu.passthrough=1", "kpti=off", "pci=realloc", "smmu.bypassdev=0x1000:0x17")
    assert (value.clock_source, value.numa_nodes) == ("arch_sys_counter", 4)


def test_a_host_that_shows_nothing_but_its_kernel() -> None:
    bare = {"/proc/sys/kernel/osrelease": Output(out="6.8.0\n"), "/proc/swaps": Output(ended="absent")}
    value = learned(HostSettings, bare)
    assert (value.governors, value.clock_source, value.numa_nodes, value.numa_balancing) == ((), "", 0, None)
    assert isinstance(learned(HostSettings, {"/proc/sys/kernel/osrelease": Output(out="")}), Unreadable)


@pytest.mark.parametrize(
    "path",
    [path for path in SETTINGS if "numa" in path or "node/" in path or "clocksource0/cur" in path or "huge" in path],
)
@pytest.mark.parametrize("text", ["", "Permission denied, try again.\n", "\0\0"])
def test_a_setting_with_other_text_than_the_kernels_is_unread_and_none_that_the_kernel_lacks(
    path: str, text: str
) -> None:
    outputs = {name: Output(out=value) for name, value in SETTINGS.items()}
    value = learned(HostSettings, outputs | {path: Output(out=text)})
    assert isinstance(value, HostSettings) and set(value.unread) == {path}
    absent = learned(HostSettings, outputs | {path: Output(ended="absent")})
    assert isinstance(absent, HostSettings) and absent.unread == {}


def test_network_cards() -> None:
    base = "/sys/class/net/{0}/device/net/{0}/{1}"
    outputs = {
        base.format("ens1", "speed"): Output(out="100000\n"),
        base.format("ens1", "duplex"): Output(out="full\n"),
        base.format("ens2", "speed"): Output(ended="error", err="Invalid argument"),
        base.format("ens3", "speed"): Output(out="-1\n"),
    }
    assert list(learned(NetworkCards, outputs).cards) == ["ens1"]
    assert isinstance(learned(NetworkCards, {}), Absent)


def test_the_table_of_mounts() -> None:
    text = "nas1:/a /my\\040data nfs4 rw 0 0\n/dev/sda1 / ext4 rw 0 0\nbad\nx /run/user/1 fuse.portal rw 0 0\n"
    table = learned(MountTable, {"/proc/self/mounts": Output(out=text)})
    assert [(mount.target, mount.source, mount.kind) for mount in table.mounts] == [("/my data", "nas1:/a", "nfs4")]
    other_text = {"/proc/self/mounts": Output(out="Permission denied, try again.\n")}
    assert isinstance(learned(MountTable, other_text), Unreadable)


def test_which_mounts_come_and_go() -> None:
    """By whole folders; a network file system counts wherever it is."""
    passed_over = ("/run", "/run/user/0", "/proc/acpi", "/sys/fs/cgroup", "/snap/core/1", "/etc/hosts")
    kept = ("/", "/runs", "/dev/shm", "/dev/shm2", "/data/run", "/var/lib/docker2", "/etcetera", "/processed", "/mnt")
    rows = "".join(f"tmpfs {target} tmpfs rw 0 0\n" for target in (*passed_over, *kept))
    table = learned(MountTable, {"/proc/self/mounts": Output(out=rows + "nas:/a /run/a nfs4 rw 0 0\n")})
    assert [mount.target for mount in table.disks] == list(kept)
    assert [mount.target for mount in table.mounts] == ["/run/a"]


ROWS = [
    # Public files 43624771056 and 34070036626: GPFS has a name for a source
    ("/dev/vesta_scratch /soft gpfs rw,relatime 0 0", "/soft", "gpfs"),
    ("scratch /fs/scratch gpfs rw,relatime 0 0", "/fs/scratch", "gpfs"),
    # 61970075066, and 42992187578 of a volume in Kubernetes
    (
        "JuiceFS:juicefs-prod /mnt/juicefs fuse.juicefs rw,nosuid,nodev,relatime,user_id=1002,group_id=1002 0 0",
        "/mnt/juicefs",
        "fuse.juicefs",
    ),
    (
        "JuiceFS:juicefs-volume1 /var/lib/juicefs/volume/juicefs-volume1-pv fuse.juicefs rw,relatime,user_id=0 0 0",
        "/var/lib/juicefs/volume/juicefs-volume1-pv",
        "fuse.juicefs",
    ),
    # 4760471278, 4588442484 (Fluid): caches for training data
    (
        "alluxio-fuse /runtime-mnt/x fuse.alluxio-fuse rw,nosuid,nodev,relatime 0 0",
        "/runtime-mnt/x",
        "fuse.alluxio-fuse",
    ),
    ("jindofs-fuse /runtime-mnt/y fuse.jindofs-fuse rw 0 0", "/runtime-mnt/y", "fuse.jindofs-fuse"),
    ("goosefs-fuse /runtime-mnt/z fuse.goosefs-fuse rw 0 0", "/runtime-mnt/z", "fuse.goosefs-fuse"),
    # 54773958000, 13933822891: Lustre over InfiniBand, with two servers
    ("192.168.1.1@o2ib:/fs /lustre lustre rw 0 0", "/lustre", "lustre"),
    ("10.0.0.40@o2ib:10.0.0.41@o2ib:/scratch1 /scratch lustre rw 0 0", "/scratch", "lustre"),
    # 52840594035: NFS with several connections and servers
    (
        "172.27.255.33:/volumes/47d3 /mnt/data1 nfs rw,relatime,vers=3,proto=tcp,nconnect=16,remoteports=dns 0 0",
        "/mnt/data1",
        "nfs",
    ),
]


@pytest.mark.parametrize(("row", "target", "kind"), ROWS)
def test_real_rows_of_the_table_of_mounts(row: str, target: str, kind: str) -> None:
    table = learned(MountTable, {"/proc/self/mounts": Output(out=f"proc /proc proc rw,relatime 0 0\n{row}\n")})
    assert [(mount.target, mount.kind) for mount in table.mounts] == [(target, kind)]


def test_paths_that_are_mounted_on_demand() -> None:
    text = "auto.home /home autofs rw 0 0\nnas1:/h/a /home/a nfs4 rw 0 0\nsystemd-1 /my\\040data autofs rw 0 0\n"
    table = learned(MountTable, {"/proc/self/mounts": Output(out=text)})
    assert table.automounts == ("/home", "/my data")
    assert table.is_automounted("/home/a") and table.is_automounted("/my data")
    assert not table.is_automounted("/homes/a") and not table.is_automounted("/data")


def test_each_mount_is_tried(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"names_in": names_in, "read_text": read_text}
    exec(function_source(try_mounts), namespace)
    given_paths = {"asked": "MountAnswers", "MountAnswers": [str(tmp_path), str(tmp_path / "gone")]}
    states = answered(MountAnswers, json.loads(json.dumps(namespace["try_mounts"](given_paths)))).states
    assert states == {str(tmp_path): "ok", str(tmp_path / "gone"): "No such file or directory"}


def test_settings_files_and_variables_without_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hosts").write_text("10.0.0.1 node1\n")
    (tmp_path / "zone").symlink_to("/usr/share/zoneinfo/Etc/UTC")
    monkeypatch.setattr(snapshot, "SETTING_FILES", (f"{tmp_path}/*", "/nowhere/*"))
    monkeypatch.setattr(snapshot, "_packages", dict)
    monkeypatch.setenv("https_proxy", "http://ann:pass1@proxy:3128")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    answer = read_snapshot({})
    assert answer["files"] == {
        str(tmp_path / "hosts"): "15 bytes, CRC-32 %08x" % zlib.crc32(b"10.0.0.1 node1\n"),  # noqa: UP031
        str(tmp_path / "zone"): "/usr/share/zoneinfo/Etc/UTC",
    }
    assert answer["environment"]["https_proxy"] == "http://proxy:3128"
    assert "TORCHELASTIC_RUN_ID" not in answer["environment"]
