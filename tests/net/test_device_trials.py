"""Programs of the accelerators' own network: what they print, who is tried, and that nothing of them is left.

The outputs are laid out as in linux-rdma/perftest issues 132, 228, 262, 295 and 393, in rdma-core's rc_pingpong.c, and
in the Ascend driver's ds_net_ext.c.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from contextlib import suppress
from ipaddress import IPv4Interface
from pathlib import Path
from types import SimpleNamespace

import pytest

from doctor.engine.catalog import load_checks
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings, Ping
from doctor.facts.rdma import Gid, RdmaDevice, RdmaPort, RdmaPorts
from doctor.net.device_trials import (
    HostDevices,
    answered_pings,
    devices_of,
    ping_calls,
    rdma_command,
    read_ping,
    read_rdma,
    rping_command,
)
from doctor.net.plan import DEVICE_FACTS, HostEndpoint, NetOptions, NetPlan, input_facts, tries_devices
from doctor.net.prober.device_tools import MAX_OUTPUT, end_program, run_programs, start_program
from doctor.net.run.busy_hosts import HostTrial
from doctor.net.run.device_rounds import try_devices
from doctor.net.schedule import full
from tests.hosts.fleet import Fleet
from tests.readable import readable

HEAD = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Mtu             : 4096[B]
 Link type       : IB
 Data ex. method : Ethernet
---------------------------------------------------------------------------------------
 local address: LID 0x02 QPN 0x0032 PSN 0x5f2841 RKey 0x002440 VAddr 0x007f2e5f64b000
"""
REMOTE = " remote address: LID 0x01 QPN 0x003a PSN 0xc0fd7e RKey 0x002442 VAddr 0x007f443b2f8000\n"
COLUMNS = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
OLD_DRIVER = "libibverbs: Warning: couldn't load driver 'libmana-rdmav34.so': cannot open shared object file\n"


@pytest.mark.parametrize(
    ("text", "result", "detail"),
    [
        (
            HEAD + REMOTE + COLUMNS + " 65536      500          97.71      97.68 \t\t 0.186\n",
            "worked",
            "",
        ),
        (OLD_DRIVER + HEAD + REMOTE + COLUMNS + " 65536      500   97.71   97.68   0.186\n", "worked", ""),
        ("Couldn't connect to 192.168.125.211:18515\nUnable to open file descriptor", "unknown", "Couldn't connect to"),
        (
            HEAD + REMOTE + " Failed to modify QP 122273 to RTR\n Unable to Connect the HCA's",
            "failed",
            "Failed to modify",
        ),
        (
            HEAD + REMOTE + COLUMNS + " Completion with error at client\n Failed status 12: wr_id 0",
            "failed",
            "Completion",
        ),
        (HEAD + REMOTE + COLUMNS, "failed", "no data passes"),
        (HEAD, "unknown", "local address"),
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", "unknown", "mlx5_9 not found"),
        ("Failed to get IB devices list: Function not implemented", "unknown", "Failed to get IB devices"),
        (
            "32768000 bytes in 0.01 seconds = 21845.33 Mbit/sec\n500 iters in 0.01 seconds",
            "worked",
            "",
        ),
        (
            "  remote address:  LID 0x0001\nFailed status transport retry counter exceeded (12)",
            "failed",
            "12",
        ),
        ("", "unknown", "printed nothing"),
    ],
)
def test_what_an_rdma_program_printed(text: str, result: str, detail: str) -> None:
    read, why, gigabits = read_rdma(text)
    assert read == result
    assert detail in why
    assert (gigabits > 0) is (result == "worked")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("device 3 PING 29.1.0.2\n3 packets transmitted, 3 received, 0.00% packet loss\n", "worked"),
        ("recv time out seq=0\n3 packets transmitted, 2 received, 33.33% packet loss\n", "failed"),
        ("hccn_tool is busy, please try again.\n", "unknown"),
        ("Segmentation fault", "unknown"),
    ],
)
def test_what_hccn_tool_printed(text: str, result: str) -> None:
    assert read_ping(text)[0] == result


RPING_DATA = "".join(
    f"ping data: rdma-ping-{number}: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefgh\n" for number in range(10)
)


@pytest.mark.parametrize(
    ("text", "result", "detail"),
    [
        (RPING_DATA, "worked", ""),
        (RPING_DATA + "client DISCONNECT EVENT...\n", "worked", ""),
        (RPING_DATA[: len(RPING_DATA) // 2] + "client DISCONNECT EVENT...\n", "failed", "5 of 10 pings came back"),
        (RPING_DATA + "data mismatch!\nrping client failed: -1\n", "failed", "data mismatch!"),
        (
            "cq completion failed status 12\nwait for RDMA_WRITE_ADV state 11\nrping client failed: -1\n",
            "failed",
            "cq completion failed status 12",
        ),
        ("cma event RDMA_CM_EVENT_UNREACHABLE, error -110\nwait for CONNECTED state 4\n", "failed", "UNREACHABLE"),
        (
            "cma event RDMA_CM_EVENT_ADDR_ERROR, error -110\nwaiting for addr/route resolution state 1\n",
            "failed",
            "-110",
        ),
        (
            "cma event RDMA_CM_EVENT_ADDR_ERROR, error -19\nwaiting for addr/route resolution state 1\n",
            "unknown",
            "-19",
        ),
        ("cma event RDMA_CM_EVENT_REJECTED, error -104\nwait for CONNECTED state 4\n", "unknown", "REJECTED"),
        ("rdma_create_event_channel: No such device\n", "unknown", "No such device"),
        ("client DISCONNECT EVENT...\n", "unknown", "DISCONNECT"),
    ],
)
def test_what_rping_printed(text: str, result: str, detail: str) -> None:
    """As rdma-core's rping.c words it, and as runs over siw, rxe and cxgb4 have printed it."""
    read, why, _ = read_rdma(text)
    assert read == result
    assert detail in why


def test_devices_are_tried_and_read_only_where_a_check_needs_it() -> None:
    checks = load_checks()
    assert tries_devices(checks)
    without = tries_devices(check for check in checks if check.name != "net-device-path-broken")
    assert not without
    assert not {*DEVICE_FACTS} & {*input_facts(NetOptions(mode="full", devices=without))}
    assert {*DEVICE_FACTS} <= {*input_facts(NetOptions(mode="full"))}


def test_npus_ping_those_of_their_number_by_either_address_family() -> None:
    source = HostDevices(npus={0: "29.1.0.1", 1: "29.1.0.2", 5: "fd00::3", 6: "29.1.0.4"})
    target = HostDevices(npus={1: "29.1.1.2", 5: "fd00::5", 6: "fd00::6", 7: "29.1.1.7"})
    assert ping_calls(source, target) == [
        ("NPU 1", ["hccn_tool", "-i", "1", "-ping", "-g", "address", "29.1.1.2"]),
        ("NPU 5", ["hccn_tool", "-i", "5", "-ping", "-inet6", "-g", "ipv6_address", "fd00::5"]),
    ]


def test_what_the_second_round_had_answered_is_not_asked_again() -> None:
    """From either end; a ping that lost a packet is made again."""
    addresses = [
        DeviceAddresses(
            by_npu={npu: IPv4Interface(f"29.1.{host}.{npu}/16") for npu in range(4)},
        )
        for host in (1, 2)
    ]
    pings = [
        DevicePings(pings=(Ping(0, "29.1.2.0", 3, 3), Ping(1, "29.1.2.1", 3, 2), Ping(3, "29.1.2.3", 0, 0))),
        DevicePings(pings=(Ping(2, "29.1.1.2", 3, 3),)),
    ]
    source, target = (devices_of(address, None, {}, ping) for address, ping in zip(addresses, pings, strict=True))
    assert answered_pings(source, target) == [0, 2]
    assert [label for label, _ in ping_calls(source, target)] == ["NPU 1", "NPU 3"]


def test_active_ports_are_tried_with_an_address_that_fits() -> None:
    gids = (
        Gid(0, "fe80:0000::1", "IB/RoCE v1", "eth0"),
        Gid(3, "0000:0000:0000:0000:0000:ffff:0a00:1", "RoCE v2", "eth0"),
    )
    roce = RdmaPort(1, "4: ACTIVE", "5: LinkUp", "100 Gb/sec (4X EDR)", "Ethernet", gids)
    infiniband, down = RdmaPort(1, "4: ACTIVE", "", "", "InfiniBand"), RdmaPort(2, "1: DOWN", "", "", "Ethernet", gids)
    adapters = RdmaPorts(
        devices=(RdmaDevice("mlx5_0", "", "", "", (roce, down)), RdmaDevice("mlx5_1", "", "", "", (infiniband,)))
    )
    assert devices_of(None, adapters, {}).rdma == {"mlx5_0:1": 3, "mlx5_1:1": None}
    assert devices_of(None, adapters, {"NCCL_IB_GID_INDEX": "1"}).rdma == {"mlx5_0:1": 1, "mlx5_1:1": None}
    assert devices_of(None, adapters, {}).rdma_addresses == {"mlx5_0:1": "10.0.0.1"}


@pytest.mark.parametrize(("node", "layer"), [("7: <unknown>", "Unknown"), ("4: RNIC", "Ethernet"), ("", "Unspecified")])
def test_adapters_that_cannot_connect_queues_by_themselves_are_counted_and_not_tried(node: str, layer: str) -> None:
    """EFA ends ib_write_bw with "Failed to create QP", and iWARP connects by its connection manager alone."""
    port = RdmaPort(1, "4: ACTIVE", "5: LinkUp", "100 Gb/sec (4X EDR)", layer)
    usable = RdmaDevice("mlx5_0", "", "", "", (RdmaPort(1, "4: ACTIVE", "5: LinkUp", "", "InfiniBand"),), node="1: CA")
    devices = devices_of(None, RdmaPorts((RdmaDevice("rdmap0s6", "", "", "", (port,), node=node), usable)), {})
    assert (devices.rdma, devices.untried) == ({"mlx5_0:1": None}, ("rdmap0s6",))
    assert " ".join(rping_command(18516, "10.0.0.2")) == "rping -s -a 10.0.0.2 -p 18516 -C 10 -v -V"
    assert rping_command(18516, "10.0.0.2", "10.0.0.1")[:5] == ["rping", "-c", "-I", "10.0.0.1", "-a"]
    serving = rdma_command("ib_write_bw", "mlx5_0:1", 3, 18515)
    assert serving[:7] == ["ib_write_bw", "-d", "mlx5_0", "-i", "1", "-p", "18515"]
    assert serving[-2:] == ["-x", "3"]
    assert rdma_command("ibv_rc_pingpong", "mlx5_0:1", 3, 18515, "10.0.0.2")[-3:] == ["-g", "3", "10.0.0.2"]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a program that stands for hccn_tool."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path / "hccn_tool"


def test_a_program_that_never_ends_is_ended_with_what_it_started(program: Path, tmp_path: Path) -> None:
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! >{tmp_path}/child\necho begun\nwait\n")
    program.chmod(0o755)
    began = time.monotonic()
    assert run_programs([["NPU 0", ["hccn_tool"]], ["NPU 1", ["hccn_tool"]]], 1.0, ()) == [
        ["NPU 0", "begun\n", pytest.approx(1.0, abs=5)]
    ]
    assert time.monotonic() - began < 20
    with suppress(ProcessLookupError):  # it is gone already
        child = os.pidfd_open(int((tmp_path / "child").read_text()))
        assert readable([child], 10), "it has not ended"
        os.close(child)


def test_one_that_waits_for_a_lock_is_run_again(program: Path, tmp_path: Path) -> None:
    program.write_text(
        f"#!/bin/sh\necho >>{tmp_path}/runs\ntest $(wc -l <{tmp_path}/runs) -ge 3 && echo done || echo it is busy\n"
    )
    program.chmod(0o755)
    ((label, text, _),) = run_programs([["NPU 0", ["hccn_tool"]]], 30, ["is busy"])
    assert (label, text) == ("NPU 0", "done\n")


def test_what_it_prints_is_bounded_and_no_other_program_is_started(program: Path) -> None:
    program.write_text("#!/bin/sh\nyes 2>&- | head -c 300000\n")
    program.chmod(0o755)
    assert len(end_program(start_program(["hccn_tool"], 30), 30)) == MAX_OUTPUT
    with pytest.raises(OSError, match="not a program"):
        start_program(["sh", "-c", "true"], 1)
    with pytest.raises(OSError, match="not a program"):
        start_program([], 1)


@pytest.mark.full
@pytest.mark.hosts
def test_no_npu_is_pinged_twice_from_one_host(fleet_a2: Fleet) -> None:
    """Four hosts: the pings of the second round reach all pairs, and the network test makes none of its own."""
    argv = [sys.executable, "-m", "doctor", "net", ",".join(fleet_a2.hosts), "-F", fleet_a2.ssh_config, "--net", "full"]
    before = {host: fleet_a2.read(host, "/run/npu/calls") for host in fleet_a2.hosts}
    done = fleet_a2.run([*argv, "--json", "--no-speeds"], cwd=Path(__file__).parents[2], timeout=200)
    assert done.returncode == 0, done.stdout[:2000] + done.stderr
    for host in fleet_a2.hosts:
        lines = fleet_a2.read(host, "/run/npu/calls").removeprefix(before[host]).splitlines()
        pings = Counter(line for line in lines if " -ping " in line)
        assert len(pings) == 16
        assert set(pings.values()) == {1}
    assert "NPU pings between all pairs: 48 of 48 decided" in done.stdout


def test_what_the_budget_left_no_time_for_is_undecided() -> None:
    """Two hosts with two NPUs, and no second left: both pings are in the answer as unknown."""
    hosts = ("a", "b")
    devices = HostDevices(npus={0: "192.0.2.1", 1: "192.0.2.2"})
    plan = NetPlan(tuple(HostEndpoint(host, {}, devices=devices) for host in hosts), (), full(2, 0), {})
    results = {host: HostTrial() for host in hosts}
    for result in results.values():
        result.programs = ["hccn_tool"]
    probers = SimpleNamespace(lost={}, send=lambda host, order: None, wait=lambda ready, end: None)
    notes = try_devices(plan, results, probers, time.monotonic(), load=True)  # type: ignore[arg-type]
    assert notes == ["NPU pings between all pairs: 0 of 2 decided"]
    undecided = [(entry["device"], entry["result"], entry["detail"]) for entry in results["a"].devices]
    assert undecided == [(f"NPU {npu}", "unknown", "the time budget ended before") for npu in (0, 1)]
