# ruff: noqa: E501 - outputs are kept as they were printed
"""What ibstat, ibstatus, ibv_devinfo and rdma printed on real machines, each with the public page that shows it.

doctor reads the same ports from sysfs. `adapters` brings the texts into the form that its collector returns: the words
are those of infiniband-diags (ibstat.c), rdma-core (devinfo.c) and iproute2 (rdma/link.c) for the kernel's states.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

GITHUB = "https://github.com"
STATES = {"down": "1: DOWN", "initializing": "2: INIT", "init": "2: INIT", "armed": "3: ARMED", "active": "4: ACTIVE"}
PHYSICAL = {"polling": "2: Polling", "disabled": "3: Disabled", "linkup": "5: LinkUp"}


class ToolOutput(NamedTuple):
    """The adapters of one host, as a tool printed them, and what must be found on that host alone."""

    source: str
    text: str
    ports: tuple[str, ...]
    """Names of the ports that are active."""
    checks: frozenset[str] = frozenset()


def _ibstat(name: str, kind: str, firmware: str, *ports: tuple[str, str, str, str]) -> str:
    """ibstat's lines of one adapter; of each port state, physical state, rate and link layer."""
    text = f"CA '{name}'\n\tCA type: {kind}\n\tNumber of ports: {len(ports)}\n\tFirmware version: {firmware}\n"
    text += "\tHardware version: 0\n\tNode GUID: 0x58a2e10300dae626\n\tSystem image GUID: 0x58a2e10300dae626\n"
    for number, (state, physical, rate, layer) in enumerate(ports, 1):
        text += f"\tPort {number}:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n"
        text += "\t\tBase lid: 0\n\t\tLMC: 0\n\t\tSM lid: 0\n\t\tCapability mask: 0x00010000\n"
        text += f"\t\tPort GUID: 0x5aa2e1fffedae626\n\t\tLink layer: {layer}\n"
    return text


UP, OFF = ("Active", "LinkUp"), ("Down", "Disabled")
ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"
TOOL_OUTPUTS: tuple[ToolOutput, ...] = (
    ToolOutput(
        f"{GITHUB}/kvcache-ai/Mooncake/issues/1999",
        _ibstat("mlx5_0", "MT4129", "28.39.1002", (*UP, "200", ETHERNET))
        + _ibstat("mlx5_1", "MT4129", "28.39.1002", (*UP, "200", ETHERNET))
        + _ibstat("mlx5_10", "MT4125", "22.31.1014", (*OFF, "40", ETHERNET)),
        ("mlx5_0:1", "mlx5_1:1"),
    ),
    ToolOutput(
        f"{GITHUB}/leptonai/gpud/pull/752",
        _ibstat("mlx5_7", "MT4129", "28.41.1000", (*UP, "200", INFINIBAND))
        + "ibpanic: [1323906] main: stat of IB device 'mlx5_8' failed: No such file or directory\n",
        ("mlx5_7:1",),
    ),
    ToolOutput(
        f"{GITHUB}/NVIDIA/l2fwd-nv/issues/6",
        _ibstat("mlx5_0", "MT4125", "22.32.2004", (*UP, "100", ETHERNET))
        + _ibstat("mlx5_1", "MT4125", "22.32.2004", (*UP, "100", ETHERNET)),
        ("mlx5_0:1", "mlx5_1:1"),
    ),
    ToolOutput(
        f"{GITHUB}/sgl-project/sglang/issues/6823",
        _ibstat("mlx5_0", "MT4125", "22.43.2566", (*OFF, "40", ETHERNET))
        + _ibstat("mlx5_1", "MT4125", "22.43.2566", (*OFF, "40", ETHERNET))
        + _ibstat("mlx5_10", "MT4129", "28.43.2566", (*UP, "400", ETHERNET)),
        ("mlx5_10:1",),
    ),
    ToolOutput(
        f"{GITHUB}/MrBr-github/lshca/issues/79 (shared by several hosts: a quarter of its rate)",
        _ibstat("mlx5_2", "MT4125", "22.29.2002", (*UP, "2.5", ETHERNET)),
        ("mlx5_2:1",),
    ),
    ToolOutput(
        f"{GITHUB}/linux-rdma/rdma-core/pull/847",
        _ibstat("mlx4_0", "MT4099", "2.42.5000", (*OFF, "10", INFINIBAND), (*UP, "56", INFINIBAND)),
        ("mlx4_0:2",),
    ),
    ToolOutput(
        f"{GITHUB}/NVIDIA/nccl/issues/622 (Intel E810: no type, no hardware version)",
        _ibstat("rocep216s0f0", "", "1.50", (*OFF, "100", ETHERNET)),
        (),
    ),
    ToolOutput(
        f"{GITHUB}/NVIDIA/nccl/issues/1591",
        _ibstat("mlx5_5", "MT4129", "28.41.1000", (*UP, "400", INFINIBAND)),
        ("mlx5_5:1",),
    ),
    ToolOutput(
        "https://kb.advancedclustering.com/kb/InfiniBand-Port-States.1074725608.html (not indented)",
        re.sub("^\t+", "", _ibstat("mlx4_0", "MT4099", "2.10.0", (*UP, "40", INFINIBAND)), flags=re.M),
        ("mlx4_0:1",),
    ),
    ToolOutput(
        "https://kb.advancedclustering.com/kb/InfiniBand-Port-States.1074725608.html (no subnet manager)",
        _ibstat("mlx4_0", "MT4099", "2.10.0", ("Initializing", "LinkUp", "40", INFINIBAND)),
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        "60859828466 (two lanes of HDR)",
        "".join(_ibstat(f"mlx5_{number}", "MT4123", "20.36.1010", (*UP, "100", INFINIBAND)) for number in range(8)),
        tuple(f"mlx5_{number}:1" for number in range(8)),
    ),
    ToolOutput(
        "36058085149",
        _ibstat("mlx5_0", "MT4123", "20.35.1012", (*UP, "100", INFINIBAND)),
        ("mlx5_0:1",),
    ),
    ToolOutput(
        f"{GITHUB}/ROCm/rccl/issues/1423",
        "link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 3403 sm_lid 1 lmc 0 state DOWN physical_state POLLING\n",
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/ROCm/rccl/issues/1423 (asked again)",
        "link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 3403 sm_lid 1 lmc 0 state DOWN physical_state LINK_UP\n",
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/ROCm/rccl/issues/1423 (and again)",
        "link mlx5_7/1 subnet_prefix fe80:0000:0000:0000 lid 3403 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n",
        ("mlx5_7:1",),
    ),
    ToolOutput(
        f"{GITHUB}/NVIDIA/nccl/issues/1866",
        "".join(
            f"Infiniband device 'mlx5_{number}' port 1 status:\n"
            f"\tdefault gid:\t fe80:0000:0000:0000:8ae9:a4ff:fe9c:7f1{gid}\n\tbase lid:\t 0x0\n\tsm lid:\t\t 0x0\n"
            "\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 100 Gb/sec (4X EDR)\n\tlink_layer:\t Ethernet\n"
            for number, gid in ((0, "a"), (1, "b"))
        ),
        ("mlx5_0:1", "mlx5_1:1"),
    ),
    ToolOutput(
        f"{GITHUB}/deepseek-ai/DeepEP/issues/60",
        "hca_id: mlx5_0\n        transport:                      InfiniBand (0)\n        fw_ver:      28.39.2048\n"
        "        vendor_part_id:                 4129\n        board_id:                       MT_0000000838\n"
        "        phys_port_cnt:                  1\n                port:   1\n"
        "                        state:                  PORT_DOWN (1)\n"
        "                        link_layer:             InfiniBand\n",
        (),
    ),
    ToolOutput(
        f"{GITHUB}/deepseek-ai/DeepEP/issues/38",
        "hca_id: mlx5_2\n        transport:                      InfiniBand (0)\n        fw_ver:      28.42.1000\n"
        "        vendor_part_id:                 4129\n        board_id:                       MT_0000000838\n"
        "        phys_port_cnt:                  1\n                port:   1\n"
        "                        state:                  PORT_ACTIVE (4)\n"
        "                        link_layer:             Ethernet\n",
        ("mlx5_2:1",),
    ),
    ToolOutput(
        f"{GITHUB}/leptonai/gpud, infiniband/class/testdata/sys-class-infiniband-h100.0 (sysfs)",
        "".join(
            f"Infiniband device '{name}' port 1 status:\n\tstate:\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
            f"\trate:\t {rate}\n\tlink_layer:\t {layer}\n"
            for name, rate, layer in (
                ("mlx5_0", "400 Gb/sec (4X NDR)", INFINIBAND),
                ("mlx5_4", "400 Gb/sec (4X NDR)", INFINIBAND),
                ("mlx5_bond_0", "200 Gb/sec (2X NDR)", ETHERNET),
            )
        ),
        ("mlx5_0:1", "mlx5_4:1", "mlx5_bond_0:1"),
    ),
)

TOOL_OUTPUTS += (
    ToolOutput(
        "26332778831",
        _ibstat("mlx4_0", "MT4099", "2.42.5000", ("Down", "Polling", "10", INFINIBAND), (*OFF, "40", INFINIBAND)),
        (),
    ),
    ToolOutput(
        "37908904937",
        _ibstat("mlx4_0", "MT25418", "2.3.0", (*UP, "20", INFINIBAND), ("Down", "Polling", "10", INFINIBAND)),
        ("mlx4_0:1",),
    ),
)

GCM = "facebookresearch/gcm, gcm/tests/data/health_checks"
"""The files of /sys of hosts of one cluster, here in ibstat's words."""


def gcm_host(
    rate: str = "200", stuck: tuple[int, ...] = (), numbers: tuple[int, ...] = (0, 1, 2, 3, 6, 7, 8, 9)
) -> str:
    """The eight adapters of such a host."""
    state = {True: ("Initializing", "LinkUp"), False: UP}
    ports = {number: (*state[number in stuck], rate, INFINIBAND) for number in numbers}
    return "".join(_ibstat(f"mlx5_{number}", "MT4123", "20.31.2354", port) for number, port in ports.items())


TOOL_OUTPUTS += (
    ToolOutput(f"{GCM}/learn_good.json", gcm_host(), tuple(f"mlx5_{number}:1" for number in (0, 1, 2, 3, 6, 7, 8, 9))),
    ToolOutput(
        f"{GCM}/learn_stuck_ib_intf.json",
        gcm_host(stuck=(6, 8)),
        tuple(f"mlx5_{number}:1" for number in (0, 1, 2, 3, 7, 9)),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/NiCkWKT/Cluster-ansible/blob/c540a2f9/ibstat.txt",
        _ibstat("mlx4_0", "MT4099", "2.42.5000", ("Initializing", "LinkUp", "40", INFINIBAND)),
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/sparticlesteve/pytorch-cuda-mpi-error/blob/081b7e6a/ibstat.txt (two fabrics and a network)",
        _ibstat("mlx4_0", "MT4099", "2.42.5000", (*UP, "10", ETHERNET))
        + "".join(
            _ibstat(f"mlx5_{number}", "MT4119", "16.24.1000", (*UP, rate, ETHERNET if number == 3 else INFINIBAND))
            for number, rate in enumerate(("100", "56", "100", "100", "100", "56", "100", "56"))
        ),
        ("mlx4_0:1", *(f"mlx5_{number}:1" for number in range(8))),
    ),
    ToolOutput(
        "65979240348 (BlueField-3, no subnet manager)",
        "".join(
            _ibstat(name, "MT41692", "32.47.1088", ("Down", "LinkUp", "100", INFINIBAND))
            for name in ("mlx5_0", "mlx5_1")
        ),
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        "leptonai/gpud, components/accelerator/nvidia/infiniband/class/testdata/sys-class-infiniband-h100.0",
        "".join(
            _ibstat(f"mlx5_{number}", "MT4129", "28.39.2048", (*UP, "400", INFINIBAND))
            for number in (0, 1, 4, 5, 6, 7, 8, 9)
        )
        + _ibstat("mlx5_bond_0", "MT4129", "28.39.2048", (*UP, "200", ETHERNET)),
        (*(f"mlx5_{number}:1" for number in (0, 1, 4, 5, 6, 7, 8, 9)), "mlx5_bond_0:1"),
    ),
)

INIT, POLLING = ("PORT_INIT (2)", INFINIBAND), ("Down", "Polling")
ON = ("PORT_ACTIVE (4)", ETHERNET)


def _devinfo(firmware: str, part: int, name: str, port: tuple[str, str]) -> str:
    """ibv_devinfo's lines of an adapter with one port; of the port state and link layer."""
    return (
        f"hca_id:\t{name}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t{firmware}\n"
        f"\tvendor_id:\t\t\t0x02c9\n\tvendor_part_id:\t\t\t{part}\n\thw_ver:\t\t\t\t0x0\n\tphys_port_cnt:\t\t\t1\n"
        f"\t\tport:\t1\n\t\t\tstate:\t\t\t{port[0]}\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tlink_layer:\t\t{port[1]}\n\n"
    )


TOOL_OUTPUTS += (
    ToolOutput(
        f"{GITHUB}/leptonai/gpud/pull/482",
        _ibstat("mlx5_10", "MT4129", "28.39.1002", (*POLLING, "10", INFINIBAND)),
        (),
    ),
    ToolOutput(
        f"{GITHUB}/Mellanox/network-operator/issues/249",
        _ibstat("mlx5_7", "MT4124", "20.28.4000", ("Down", "LinkUp", "200", INFINIBAND)),
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/leptonai/gpud/pull/99",
        _ibstat("mlx5_8", "MT4125", "22.39.1002", (*OFF, "40", "")),
        (),
    ),
    ToolOutput(
        "9171543546 (no subnet manager)",
        _devinfo("16.34.1002", 4119, "mlx5_0", ON)
        + _devinfo("16.34.1002", 4119, "mlx5_1", ON)
        + _devinfo("20.34.1002", 4123, "mlx5_2", INIT)
        + _devinfo("20.34.1002", 4123, "mlx5_3", INIT),
        ("mlx5_0:1", "mlx5_1:1"),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        "9171543546 (the other host)",
        _devinfo("20.31.1014", 4123, "mlx5_0", INIT) + _devinfo("20.31.1014", 4123, "mlx5_1", INIT),
        (),
        frozenset({"rdma-port-down"}),
    ),
    ToolOutput(
        f"{GITHUB}/NVIDIA/nccl-tests/issues/128",
        _ibstat("mlx5_0", "MT4123", "20.33.1048", (*UP, "200", INFINIBAND))
        + _ibstat("mlx5_1", "MT4123", "20.33.1048", (*OFF, "10", INFINIBAND))
        + _ibstat("mlx5_2", "MT4117", "14.32.1010", (*UP, "25", ETHERNET)),
        ("mlx5_0:1", "mlx5_2:1"),
    ),
    ToolOutput(
        "52293779848",
        _ibstat("mlx5_0", "MT4129", "28.39.1002", (*POLLING, "40", INFINIBAND)),
        (),
    ),
    ToolOutput(
        "66812023389",
        _ibstat("mlx5_1", "MT4120", "", (*UP, "100", ""), (*POLLING, "100", "")),
        ("mlx5_1:1",),
    ),
    ToolOutput(
        "689015499",
        _ibstat("mlx4_0", "MT26428", "2.9.1000", (*UP, "40", INFINIBAND), (*POLLING, "10", INFINIBAND)),
        ("mlx4_0:1",),
    ),
)


def adapters(text: str) -> list[dict[str, Any]]:
    """The adapters as doctor's collector returns them."""
    results: list[dict[str, Any]] = []
    pattern = r"CA '(\w+)'|hca_id:\s*(\w+)|Infiniband device '(\w+)' port (\d+)|link (\w+)/(\d+) "
    for line in text.splitlines():
        head = re.match(pattern, line.strip())
        if head:
            name = head[1] or head[2] or head[3] or head[5]
            results.append({"name": name, "type": "", "board": "", "firmware": "", "ports": []})
            if head[4] or head[6]:
                results[-1]["ports"].append(_port(int(head[4] or head[6])))
        key, _, value = (part.strip() for part in line.strip().partition(":"))
        if match := re.match(r"(?:Port|port:)\s*(\d+)", line.strip()):
            results[-1]["ports"].append(_port(int(match[1])))
        elif key.lower() == "state":
            results[-1]["ports"][-1]["state"] = _state(value)
        elif key.lower() in ("physical state", "phys state"):
            results[-1]["ports"][-1]["physical"] = PHYSICAL.get(value.lower(), value)
        elif key.lower() == "rate":
            results[-1]["ports"][-1]["rate"] = value if "Gb" in value else f"{value} Gb/sec"
        elif key.lower().replace(" ", "_") == "link_layer":
            results[-1]["ports"][-1]["layer"] = value
        elif key.lower() in ("base lid", "port_lid"):
            results[-1]["ports"][-1]["lid"] = hex(int(value, 0))
        elif match := re.search(r" lid (\d+) .* state (\w+) physical_state (\w+)", line):
            physical = PHYSICAL[match[3].lower().replace("_", "")]
            named = {"state": _state(match[2]), "physical": physical, "layer": INFINIBAND, "lid": hex(int(match[1]))}
            results[-1]["ports"][-1] |= named
    return results


def _state(word: str) -> str:
    return word if word[:1].isdigit() else STATES[word.lower().removeprefix("port_").partition(" ")[0]]


def _port(number: int) -> dict[str, Any]:
    return {"number": number, "state": "", "physical": "", "rate": "", "layer": "", "gids": []}
