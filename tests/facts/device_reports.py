# ruff: noqa: E501 - outputs are kept as they were printed
"""What vendors' tools printed of devices, ill and well, with the place where each was published.

A number is the id of a public file in the index of GitHub texts that the tests' author read. Outputs are cut to the
devices that tell something; a report of nvidia-smi that was published as text has its values in the elements of the XML.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from doctor.engine.fact import Fact
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.ethernet_links import EthernetCounters, EthernetModules
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.hccn.link_state import DeviceHealth, DeviceLinks
from doctor.facts.hccn.traffic import PortCounters
from doctor.facts.npu import NpuChips, NpuProduct
from doctor.facts.npu_counters import NpuCompatibility
from doctor.facts.npu_health import NpuHealth
from doctor.facts.npu_table import NpuTable
from doctor.facts.nvlink import GpuTopology, NvLinkErrors, NvLinks
from doctor.facts.pcie_links import PcieLinks
from doctor.facts.rdma import RdmaPorts
from doctor.facts.rdma_modules import RdmaModules
from doctor.facts.vendor_tests import DcgmDiagnosis

GITHUB = "https://github.com"
WITHOUT_PROCESSES = frozenset({"npu-busy"})
"""Of a table that was pasted without the list of processes."""


class Report(NamedTuple):
    """What the tools of one host printed; in place of a text, one for each device."""

    source: str
    printed: dict[type[Fact], str | dict[str, str]]
    findings: frozenset[tuple[str, str]] = frozenset()
    """Check and words of a finding, which names the device; none of a host that is well."""
    unknown: frozenset[str] = frozenset()
    """Checks that must be unknown."""


def table(*cards: str) -> str:
    """Of npu-smi 23 with PCIe cards or a board: two rows a card."""
    return (
        "| npu-smi 23.0.0                                   Version: 23.0.0                                       |\n"
        "| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |\n"
        "| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |\n"
        "+===============================+=================+======================================================+\n"
        + "".join(f"{card}\n+=======+=======+=======+\n" for card in cards)
    )


def hbm_table(*cards: str) -> str:
    """Of npu-smi 23 with servers of NPUs."""
    return (
        "| npu-smi 23.0.rc1.b070            Version: 23.0.rc1.b070                                   |\n"
        "| NPU   Name           | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
        "| Chip                 | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
        "+======================+===============+====================================================+\n"
        + "".join(f"{card}\n+======+=======+=======+\n" for card in cards)
    )


def block(name: str, text: str, code: int = 0) -> str:
    return f"-- {name} --\n{text}-- exit {code} --\n"


def gpus(driver: str, *elements: str) -> str:
    """A report of nvidia-smi -q -x; each text holds the elements of one GPU behind its address."""
    bodies = (text.partition(" ")[::2] for text in elements)
    rows = "".join(
        f'<gpu id="{bus}"><product_name>NVIDIA</product_name><uuid>GPU-{bus}</uuid>{body}</gpu>' for bus, body in bodies
    )
    return f'<?xml version="1.0" ?>\n<nvidia_smi_log><driver_version>{driver}</driver_version>{rows}</nvidia_smi_log>\n'


def retired(bus: str, single: int, double: int, pending: str) -> str:
    return (
        f"{bus} <retired_pages><multiple_single_bit_retirement><retired_count>{single}</retired_count>"
        f"</multiple_single_bit_retirement><double_bit_retirement><retired_count>{double}</retired_count>"
        f"</double_bit_retirement><pending_blacklist>{pending}</pending_blacklist></retired_pages>"
    )


def found(check: str, *words: str) -> frozenset[tuple[str, str]]:
    return frozenset((check, word) for word in words)


BOARD = "| 0       310B4                 | Alarm           | 0.0          {0}                15    / 15            |\n| 0       0                     | NA              | {1}            {2}                            |"
MLX = """State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Status Opcode                      : {0}
Group Opcode                       : N/A
Recommendation                     : \x1b[31m{1}\x1b[0m
Effective Physical BER             : {2}
Temperature [C]                    : 54 [-5..75]
Identifier                         : OSFP
"""
MIND = f"{GITHUB}/Ascend/mind-cluster 22bb3d98"
CODES_310B = "Health Status    : Alarm\nError Code       : 80E3A203\nError Information: node type=LPM, sensor type=Chip Hardware,\n                   event state=The function of obtaining the current is abnormal\n"


def adapters(*rows: tuple[str, str, str, str]) -> str:
    """One port each: name, ``STATE/PHYSICAL``, rate and board; the layer follows from the rate's last word."""
    return json.dumps(
        [
            {
                "name": name,
                "type": "",
                "board": board,
                "firmware": "",
                "chip": f"9c63:c003:{number:04x}:48ae",
                "ports": [
                    {
                        "number": 1,
                        "state": state.partition("/")[0],
                        "physical": state.partition("/")[2],
                        "rate": rate.rpartition(" ")[0],
                        "layer": rate.rpartition(" ")[2],
                    }
                ],
            }
            for number, (name, state, rate, board) in enumerate(rows)
        ]
    )


def remapped(bus: str, count: int, pending: str) -> str:
    return (
        f"{bus} <remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>{count}</remapped_row_unc>"
        f"<remapped_row_pending>{pending}</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>"
    )


UP, NO_SIGNAL, OFF = "4: ACTIVE/5: LinkUp", "1: DOWN/2: Polling", "1: DOWN/3: Disabled"
NDR, HDR, ETHERNET, UNUSED = (
    *("400 Gb/sec (4X NDR) InfiniBand", "200 Gb/sec (4X HDR) InfiniBand"),
    *("100 Gb/sec (4X EDR) Ethernet", "40 Gb/sec (4X QDR) Ethernet"),
)
WIDE = """| npu-smi {0}                            Version: {0}                                                    |
| NPU   Name                | Health        | Power(W)             Temp(C)                 Hugepages-Usage(page)   |
| Chip                      | Bus-Id        | AICore(%)            Memory-Usage(MB)        HBM-Usage(MB)           |
+===========================+===============+======================================================================+
{1}
+===========================+===============+======================================================================+
| NPU     Chip              | Process id    | Process name       | Process memory(MB)    | Process id in container |
+===========================+===============+======================================================================+
| No running processes found in NPU 0                                                                              |
"""
"""Of npu-smi 26."""


A3 = """| npu-smi {0}                   Version: {0}                                               |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
{1}
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
"""
"""Of two chips a card."""
CHIP = "| {0}     Ascend910           | {1:<13} | {2:<8}    {3}                0    / 0             |\n| {4}     {5}                   | 0000:{6}:00.0  | 0           0    / 0          {7} / 65536         |"

A5 = """| npu-smi 25.7.rc1                                 Version: 25.7.rc1                              |
+--------+------------------+---------------+-----------------------------------------------------+
| NPU ID | Name             | Health        | Power(W)    Temp(C)           Hugepages-Usage(page) |
|        |                  | Bus-Id        | NPU Util(%) Memory-Usage(MB)  HBM-Usage(MB)         |
+========+==================+===============+=====================================================+
| 0      | Ascend950PR      | Alarm         | 205.7       71                0     / 0             |
|        |                  | 0000:71:00.0  | 100         0    / 0          90633 / 114688        |
+========+==================+===============+=====================================================+
| 1      | Ascend950PR      | Alarm         | 207.7       60                0     / 0             |
|        |                  | 0000:61:00.0  | 100         0    / 0          30492 / 114688        |
+========+==================+===============+=====================================================+
| 2      | Ascend950PR      | OK            | 192.7       57                0     / 0             |
|        |                  | 0000:81:00.0  | 0           0    / 0          5413  / 131072        |
+========+==================+===============+=====================================================+
+---------------------------+---------------+-----------------------------------------------------+
| NPU ID                    | Process id    | Process name             | Process memory(MB)       |
+===========================+===============+=====================================================+
| 0                         | 1530715       | python                   | 4724                    |
| 0                         | 1655234       | python                   | 4728                    |
+===========================+===============+=====================================================+
"""


def nvlinks(product: str, rate: str, total: int, *inactive: range | tuple[int, ...]) -> str:
    """Of ``nvidia-smi nvlink -s``: one GPU for each set of links that are down."""
    lines = []
    for gpu, down in enumerate(inactive):
        lines.append(f"GPU {gpu}: {product} (UUID: GPU-{gpu})")
        if len(down) == total:
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        else:
            lines += [f"\t Link {link}: " + ("<inactive>" if link in down else f"{rate} GB/s") for link in range(total)]
    return "\n".join(lines) + "\n"


def finisar(bias: tuple[str, ...], sent: tuple[str, ...], received: tuple[str, ...]) -> str:
    """Of ``ethtool -m``: a module of four lanes for 2 km, as public file 21333426086 has it before and after a change."""
    rows = (
        ("Laser tx bias current (Channel {0})         : {1} mA", bias),
        ("Transmit avg optical power (Channel {0})    : {1} dBm", sent),
        ("Rcvr signal avg optical power(Channel {0})  : {1} dBm", received),
    )
    lanes = "".join(f"\t{row.format(n, value)}\n" for row, values in rows for n, value in enumerate(values, 1))
    return block(
        "ens16f1np1",
        "Speed : 40000\n\tIdentifier                                : 0x11 (QSFP28)\n"
        "\tTransmitter technology                    : 0x40 (1310 nm DFB)\n"
        "\tModule temperature                        : 34.50 degrees C / 94.10 degrees F\n"
        "\tModule voltage                            : 3.2706 V\n"
        "\tAlarm/warning flags implemented           : Yes\n"
        f"{lanes}"
        "\tLaser bias current high alarm threshold   : 55.000 mA\n"
        "\tLaser bias current low alarm threshold    : 25.000 mA\n"
        "\tLaser output power high alarm threshold   : 3.5481 mW / 5.50 dBm\n"
        "\tLaser output power low alarm threshold    : 0.1585 mW / -8.00 dBm\n"
        "\tModule temperature high alarm threshold   : 60.00 degrees C / 140.00 degrees F\n"
        "\tModule temperature low alarm threshold    : 10.00 degrees C / 50.00 degrees F\n"
        "\tModule voltage high alarm threshold       : 3.6300 V\n"
        "\tModule voltage low alarm threshold        : 2.9700 V\n"
        "\tLaser rx power high alarm threshold       : 2.2387 mW / 3.50 dBm\n"
        "\tLaser rx power low alarm threshold        : 0.0251 mW / -16.00 dBm\n",
    )


DARK, REQUIRES_RESET = ("0.0001 mW / -40.00",) * 4, "[GPU requires reset]"


def fabric(state: str, status: str, rest: str = "") -> str:
    return f"<fabric><state>{state}</state><status>{status}</status>{rest}</fabric>"


BRAKE = (
    "<clocks_event_reasons><clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>"
    "<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>"
    "<clocks_event_reason_hw_power_brake_slowdown>Active</clocks_event_reason_hw_power_brake_slowdown>"
    "</clocks_event_reasons>"
)
COPPER = """State                              : Active
Physical state                     : LinkUp
Speed                              : 100G
FEC                                : Standard RS-FEC - RS(528,514)
Status Opcode                      : 0
Recommendation                     : No issue was observed
Temperature [C]                    : N/A
Rx Power Current [dBm]             : N/A
Identifier                         : QSFP28
Cable Technology                   : Copper cable, passive, unequalized
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical Errors Per Lane       : 0,0,0,0
Link Down Counter                  : 0
Raw Physical BER                   : 15E-255
"""


def lost(bus: str) -> str:
    return f"Unable to determine the device handle for GPU1: {bus}: Unknown Error\n"


def link_of(slot: str, pci_id: str, current: tuple[str, ...], pci_class: str = "0300") -> str:
    """Of one PCI function whose port supports 16 lanes at 16 GT/s."""
    port, power = ("16", "16.0 GT/s PCIe"), ("active", "D0")
    return json.dumps({"links": [[slot, pci_id, pci_class, "nvidia", current, port, power, False]], "machine": ""})


SICK = (
    Report(
        "53541644954 (a board whose log shows the mailbox of the task scheduler hung)",
        {
            NpuTable: table(BOARD.format(64, 0, "6680 / 15609")),
            NpuHealth: block("0", CODES_310B),
        },
        found("npu-unhealthy", "NPU 0", "80E3A203", "Alarm"),
    ),
    Report("61922236767", {NpuTable: table(BOARD.format(58, 0, "2500 / 7545"))}, found("npu-unhealthy", "NPU 0")),
    Report("62237132816", {NpuTable: table(BOARD.format(80, 2, "14541/ 15610"))}, found("npu-unhealthy", "NPU 0")),
    Report(
        "30333455957 (rows pasted with other widths)",
        {
            NpuTable: table(
                "| 0       310B4  | Alarm           | 0.0          60                15    / 15            |\n"
                "| 0       0       | NA              | 0            13591/ 15610                            |"
            )
        },
        found("npu-unhealthy", "NPU 0"),
    ),
    Report(
        "68324062046 (codes of a board that is slow)",
        {
            NpuTable: table(BOARD.format(52, 0, "3005 / 15610")),
            NpuHealth: block(
                "0", "Health Status    : Alarm\nError Code       : 80E3A203 80F18003\nError Information: NA\n"
            ),
        },
        found("npu-unhealthy", "80E3A203", "reset the NPU"),
    ),
    Report(
        "42636324144",
        {
            NpuTable: hbm_table(
                "| 0     910A           | Warning       | 72.0        39                0    / 0             |\n"
                "| 0                    | 0000:C1:00.0  | 0           938  / 15137      3    / 32768         |",
                "| 1     910A           | Warning       | 70.2        37                0    / 0             |\n"
                "| 0                    | 0000:81:00.0  | 0           1820 / 15137      3    / 32768         |",
                "| 2     910A           | Warning       | 70.8        37                0    / 0             |\n"
                "| 0                    | 0000:41:00.0  | 0           1667 / 15137      30750/ 32768         |",
                "| 3     910A           | Warning       | 68.8        39                0    / 0             |\n"
                "| 0                    | 0000:01:00.0  | 0           2777 / 15039      0    / 32768         |",
            )
        },
        found("npu-unhealthy", "NPU 0", "NPU 1", "NPU 2", "NPU 3"),
    ),
    Report(
        f"{MIND}, docs/zh/scheduling, offline reset",
        {
            NpuTable: hbm_table(
                "| 0     xxx                 | Warning            | 73.1        37                0    / 0             |\n"
                "| 0                         | 0000:61:00.0  | 0           920  / 13553      0    / 32768         |",
                "| 7     xxx                 | OK            | 67.0        38                0    / 0             |\n"
                "| 0                         | 0000:3D:00.0  | 0           2346 / 15567      0    / 32768         |",
            )
        },
        found("npu-unhealthy", "NPU 0"),
    ),
    Report(
        f"{MIND}, ascend-faultdiag, st_testcase, npu_info_before.txt and npu_info_after.txt (NPU 6, between two reads)",
        {
            PortCounters: {
                "5": "packet statistics:\nroce_rx_err_pkt_num:11\nroce_tx_err_pkt_num:12\n-- again --\npacket statistics:\nroce_rx_err_pkt_num:11\nroce_tx_err_pkt_num:12\n",
                "6": "packet statistics:\nroce_rx_err_pkt_num:0\nroce_tx_err_pkt_num:0\n-- again --\npacket statistics:\nroce_rx_err_pkt_num:13\nroce_tx_err_pkt_num:77\n",
            }
        },
        found("device-packets-bad", "NPU 6"),
    ),
    Report(
        f"{MIND}, ascend-faultdiag, kg_parse (the card does not answer)",
        {
            NpuChips: "NPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n0                              0                              0                              Ascend 910A\n1                              0                              1                              Ascend 910A\n",
            NpuCompatibility: block(
                "0",
                "Invalid card id.\nError parameter of -i\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]\n",
                1,
            )
            + block(
                "1",
                "        NPU ID                         : 1\n        Software Version               : 23.0.5\n        Firmware Version               : 7.1.0.7.220\n        Compatibility                  : OK\n        Chip Count                     : 1\n",
            ),
        },
        unknown=frozenset({"npu-firmware-incompatible"}),
    ),
    Report(
        f"{GITHUB}/Azure/azurehpc-health-checks 0e0a1ac2, test/data/bad_nvsmi8_output.txt (changed by its authors)",
        {
            GpuInventory: gpus(
                "535.86.10",
                retired("00000001:00:00.0", 60, 5, "No"),
                retired("00000002:00:00.0", 2, 61, "Yes"),
                retired("00000003:00:00.0", 0, 0, "No"),
                retired("00000004:00:00.0", 6, 0, "Yes"),
            )
        },
        found("gpu-row-remap-failed", "GPU 0") | found("gpu-reset-needed", "GPU 1", "GPU 3"),
    ),
    Report(
        f"{GITHUB}/Azure/azhpc-diagnostics 85439697, samples/nvidia-smi-inforom.out",
        {
            GpuInventory: gpus("460.32.03", *(f"0000000{n}:00:00.0 " for n in range(1, 9)))
            + "WARNING: infoROM is corrupted at gpu 0008:00:00.0\n"
        },
        found("gpu-inforom-corrupted", "0008:00:00"),
    ),
    Report(
        "70759283802 (A800)",
        {
            GpuInventory: gpus(
                "570.1",
                "0000:52:00.0 <gpu_recovery_action>Drain and Reset</gpu_recovery_action><ecc_mode><current_ecc>Enabled"
                "</current_ecc></ecc_mode><ecc_errors><volatile><dram_uncorrectable>32</dram_uncorrectable></volatile>"
                "<aggregate><dram_uncorrectable>71</dram_uncorrectable><sram_threshold_exceeded>No"
                "</sram_threshold_exceeded></aggregate></ecc_errors><remapped_rows><remapped_row_pending>Yes"
                "</remapped_row_pending><remapped_row_failure>No</remapped_row_failure></remapped_rows>",
            )
        },
        found("gpu-reset-needed", "GPU 0") | found("gpu-ecc-errors", "32"),
    ),
    Report(
        "62689428639",
        {RdmaModules: block("mlx5_0", MLX.format(0, "Bad signal integrity", "15E-255"))},
        found("rdma-module-out-of-range", "mlx5_0", "Bad signal integrity"),
    ),
    Report(
        "62715703368 (a port of 400G that loses packets)",
        {RdmaModules: block("mlx5_4", MLX.format(15, "Bad signal integrity", "15E-255"))},
        found("rdma-module-out-of-range", "mlx5_4", "Bad signal integrity"),
    ),
    Report(
        "62469044882 (100G-LR4 that the card does not power)",
        {
            EthernetCounters: block("uptime", "864000.00 1.00\n")
            + block("eth5", "     rx_crc_errors_phy: 13147323\n     rx_symbol_err_phy: 13115284\n")
        },
        found("network-errors-many", "eth5", "rx_crc_errors_phy"),
    ),
    Report(
        "4570644142 (the answer of a port that reaches nobody)",
        {
            NpuProduct: '{"pci": {"0000:c1:00.0": "d802"}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}',
            DeviceHealth: {"0": "net health status: Success\n", "3": "net health status: Fault\n"},
        },
        found("device-net-unhealthy", "NPU 3"),
    ),
    Report(
        f"{GITHUB}/NVIDIA/dcgm-exporter/issues/604",
        {GpuInventory: "Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error\n"},
        found("gpu-lost", "000:ba:80.0"),
    ),
    Report(
        f"{GITHUB}/JosephKJ/OWOD/issues/81",
        {
            GpuInventory: "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU\n"
        },
        found("gpu-lost", "0000:02:00.0"),
    ),
    Report(
        f"{GITHUB}/leptonai/gpud/pull/80",
        {
            GpuInventory: gpus(
                "535.161.08", remapped("00000000:1A:00.0", 0, "No"), remapped("00000000:1B:00.0", 4, "Yes")
            )
        },
        found("gpu-reset-needed", "GPU 1"),
    ),
    Report(
        f"{GITHUB}/Mellanox/network-operator/issues/249",
        {RdmaPorts: adapters(("mlx5_6", UP, HDR, "A"), ("mlx5_7", "1: DOWN/5: LinkUp", HDR, "A"))},
        found("rdma-port-down", "mlx5_7"),
    ),
    Report(
        f"{GITHUB}/ROCm/rccl/issues/1423",
        {RdmaPorts: adapters(*((f"mlx5_{n}", NO_SIGNAL if n == 7 else UP, NDR, "A") for n in range(8)))},
        found("rdma-port-down", "mlx5_7"),
    ),
    Report(
        f"{GITHUB}/openucx/ucx/issues/5970",
        {
            RdmaPorts: adapters(
                ("mlx5_0", NO_SIGNAL, "10 Gb/sec (4X SDR) InfiniBand", "A"),
                ("mlx5_1", "2: INIT/5: LinkUp", "100 Gb/sec (4X EDR) InfiniBand", "A"),
            )
        },
        found("rdma-port-down", "mlx5_1"),
    ),
    Report(
        f"{GITHUB}/leptonai/gpud issue 1085 (all links of one B200)",
        {
            NvLinks: nvlinks("NVIDIA B200", "53.125", 18, (), (), range(18), *[()] * 5),
            GpuCards: json.dumps({"pci": 8, "driver": "", "tool": True, "switches": 0}),
        },
        found("nvlink-down", "GPU 2 has 0"),
    ),
    Report(
        f"{GITHUB}/NVIDIA/k8s-dra-driver-gpu issue 626 (GB200)",
        {
            GpuInventory: gpus(
                "570.172.08",
                "0008:01:00.0 "
                + fabric(
                    "Completed",
                    "Success",
                    "<health><summary>Unhealthy</summary><bandwidth>Full</bandwidth></health>",
                ),
            )
        },
        found("gpu-fabric-unhealthy", "GPU 0", "Unhealthy"),
    ),
    Report(
        f"{GITHUB}/scitix/sichek pull 121 (H200)",
        {
            GpuInventory: gpus(
                "570.86.15",
                *(
                    f"{bus} <gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required>"
                    f"</gpu_reset_status><gpu_recovery_action>{action}</gpu_recovery_action>"
                    for bus, action in (("0000:18:00.0", "None"), ("0000:2A:00.0", "Reset"))
                ),
            )
        },
        found("gpu-reset-needed", "GPU 1"),
    ),
    Report(
        "60449313016 (the second chip of a card)",
        {
            NpuTable: A3.format(
                "26.0.rc1",
                "\n".join(
                    (
                        CHIP.format(0, "OK", "161.9", 32, 0, 0, "9D", 3101),
                        CHIP.format(0, "Warning", "-", 32, 1, 1, "9F", 2887),
                    )
                ),
            )
        },
        found("npu-unhealthy", "NPU 1"),
    ),
    Report(
        f"{GITHUB}/NVIDIA/NVSentinel issue 883 (H100)",
        {GpuInventory: gpus("570.1", *(f"0000:{bus}:00.0 " + fabric("In Progress", "N/A") for bus in ("1B", "43")))},
        found("gpu-fabric-not-ready", "GPU 0", "GPU 1", "In Progress"),
    ),
    Report(
        "61453936569 (A100)",
        {
            GpuInventory: gpus(
                "570.1",
                "0000:50:00.0 <gpu_recovery_action>Drain and Reset</gpu_recovery_action><ecc_errors><volatile>"
                "<sram_uncorrectable_parity>0</sram_uncorrectable_parity><dram_uncorrectable>113</dram_uncorrectable>"
                "</volatile><aggregate><dram_uncorrectable>179</dram_uncorrectable></aggregate></ecc_errors>",
            )
        },
        found("gpu-ecc-errors", "113 uncorrected") | found("gpu-reset-needed", "Drain and Reset"),
    ),
    Report(
        "60392175345 (two of three chips)",
        {NpuTable: A5},
        found("npu-unhealthy", "NPU 0", "NPU 1", "Alarm"),
    ),
    Report(
        f"{GITHUB}/wtdcode/vllm-backport issue 62 (A100)",
        {
            GpuInventory: gpus(
                "580.178.04",
                remapped("0000:9C:00.0", 12, "Yes") + "<gpu_recovery_action>Drain and Reset</gpu_recovery_action>",
            )
        },
        found("gpu-reset-needed", "GPU 0", "Drain and Reset"),
    ),
    Report(
        f"{GITHUB}/leptonai/gpud pull 482 (of eight alike adapters one)",
        {
            RdmaPorts: adapters(
                *(
                    (f"mlx5_{n}", *((NO_SIGNAL, "10 Gb/sec (4X SDR) InfiniBand") if n == 6 else (UP, NDR)), "MT_838")
                    for n in range(8)
                )
            )
        },
        found("rdma-port-down", "mlx5_6:1", "Polling"),
    ),
    Report(
        f"{GITHUB}/Mellanox/network-operator issue 249 (a function in a pod)",
        {RdmaPorts: adapters(("mlx5_7", "1: DOWN/5: LinkUp", HDR, "MT_0000000223"))},
        found("rdma-port-down", "mlx5_7:1", "LinkUp"),
    ),
    Report(
        "21333426086 (a module that the adapter refuses)",
        {EthernetModules: finisar(("0.000",) * 4, DARK, DARK)},
        found("network-module-out-of-range", "ens16f1np1"),
    ),
    Report(
        "68287365195 (a card whose places in the table say ERR!)",
        {
            GpuInventory: gpus(
                "595.58.03",
                f"0000:01:00.0 <performance_state>{REQUIRES_RESET}</performance_state><temperature><gpu_temp>{REQUIRES_RESET}</gpu_temp></temperature><fb_memory_usage><total>97887 MiB</total><used>58222 MiB</used></fb_memory_usage>",
            )
        },
        found("gpu-reset-needed", "GPU 0 waits for a reset"),
        frozenset({"gpu-too-hot"}),
    ),
    *(
        Report(f"{source} (GPU 1)", {GpuInventory: lost(bus)}, found("gpu-lost", bus.lower()))
        for source, bus in (
            ("53221706704", "0000:82:00.0"),
            ("61530146662", "0000:28:00.0"),
            ("56821482331", "0000:3B:00.0"),
            ("71068929126", "0000:07:00.0"),
        )
    ),
    Report(
        "59679572498 (the other GPU is gone, too)",
        {GpuInventory: lost("0000:02:00.0") + "No devices were found\n"},
        found("gpu-lost", "0000:02:00.0"),
    ),
    Report(
        "62551622726 (exit status 0, and a report of the GPUs that answer)",
        {GpuInventory: lost("0000:44:00.0") + gpus("570.124", "00000000:0A:00.0 ")},
        found("gpu-lost", "0000:44:00.0"),
    ),
    *(
        Report(
            source, {GpuInventory: gpus(driver, f"00000000:06:00.0 {BRAKE}")}, found("gpu-clocks-throttled", "GPU 0")
        )
        for source, driver in (
            ("30268516776 (V100 of another server's maker)", "515.65"),
            ("30620164557 (A10 in a virtual machine, idle)", "550.127.05"),
        )
    ),
    Report(
        "62767642738 (one of 18 links; blanks before its number)",
        {
            NvLinkErrors: "GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-f19a0d34)\n         Link  4: Replay Errors: 18422\n"
            "         Link  4: Recovery Errors: 3\n         Link  4: CRC Errors: 211\n"
        },
        found("nvlink-errors", "GPU 3", "18422"),
    ),
    Report(
        "67351891534 (HDR at 100 Gbit/s in a slot with eight lanes of PCIe 3.0)",
        {
            RdmaPorts: json.dumps(
                [
                    {
                        **json.loads(adapters(("mlx5_0", UP, "100 Gb/sec (2X HDR) InfiniBand", "MT_1")))[0],
                        "pcie": ["8.0 GT/s PCIe", "8", "16"],
                    }
                ]
            )
        },
        found("rdma-port-slow", "mlx5_0"),
    ),
    Report(
        "53916508195 (an injected fault of one port)",
        {
            NpuProduct: '{"pci": {"0000:c1:00.0": "d802"}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}',
            DeviceHealth: {"0": "net health status: Fault\n", "1": "net health status: Success\n"},
            DeviceLinks: {"0": "link status: DOWN\n", "1": "link status: UP\n"},
        },
        found("device-link-down", "NPU 0"),
    ),
    *(
        Report(
            f"{source} (current_link_width 63, current_link_speed Unknown)",
            {PcieLinks: link_of(slot, device, ("63", "Unknown", "63", "Unknown"))},
            found("pcie-link-degraded", slot),
        )
        for source, slot, device in (
            ("59679572498", "0000:02:00.0", "10de:2b85"),
            ("62699482110", "0000:01:00.0", "10de:2204"),
            ("53408368712", "0000:3a:00.0", "10de:2684"),
        )
    ),
    Report(
        "66821203712 (V100 on a board with two of four; after a stress test)",
        {
            NvLinkErrors: "GPU 0: Tesla V100-SXM2-32GB-LS (UUID: GPU-5261e3df)\n         Link 3: Replay Errors: 2353\n"
            "GPU 2: Tesla V100-SXM2-32GB-LS (UUID: GPU-d9eeee97)\n         Link 0: Replay Errors: 148\n"
            "         Link 0: CRC Errors: 65535\n"
        },
        found("nvlink-errors", "GPU 0", "GPU 2"),
    ),
    Report(
        "56148319227 (910B1)",
        {
            NpuTable: hbm_table(
                "| 0     910B1               | OK            | 97.1        50                0    / 0             |\n"
                "| 0                         | 0000:C1:00.0  | 12          0    / 0          7752 / 65536         |",
                "| 1     910B1               | Warning       | 96.8        50                0    / 0             |\n"
                "| 0                         | 0000:01:00.0  | 0           0    / 0          3440 / 65536         |",
            )
        },
        found("npu-unhealthy", "NPU 1"),
    ),
    Report(
        f"{GITHUB}/stas00/ml-engineering compute/accelerator/nvidia/debug.md (a row that corrected errors)",
        {GpuInventory: gpus("510.73.08", remapped("00000000:10:1C.0", 0, "Yes").replace("corr>0", "corr>1"))},
        found("gpu-reset-needed", "GPU 0"),
    ),
    Report(
        f"{GITHUB}/IBM/autopilot/issues/68 (a table in place of JSON)",
        {
            DcgmDiagnosis: "Successfully ran diagnostic for group.\n| Diagnostic                | Result          |\n"
            "|-----  Integration  -------+-----------------|\n| PCIe                      | Fail - All      |\n"
        },
        unknown=frozenset({"dcgm-diagnosis-failed"}),
    ),
)


ROW = "| {0:<5} {1:<19} | OK            | {2:<11} {3:<17} 0    / 0             |\n| {4:<25} | 0000:{5}:00.0  | 0           0    / 0          {6} / 65536         |"
BOARD_INFO = """        NPU ID                         : 0
        Product Name                   : {0}
        Model                          : NA
        Manufacturer                   : Huawei
        Software Version               : {1}
        Firmware Version               : {2}
        Compatibility                  : OK
        Board ID                       : {3}
        PCB ID                         : A
        BOM ID                         : 1
        Slot ID                        : 0
        Chip Count                     : 1
"""
COUNTED = """State                              : Active
Speed                              : IB-HDR
FEC                                : RS-FEC - (544,514) + PLR
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed
Identifier                         : QSFP56
Symbol Errors                      : 0
Symbol BER                         : 15E-255
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical BER                   : {0}
Link Error Recovery Counter        : 0
"""
LINKS = "".join(f"\t Link {number}: 25 GB/s\n" for number in range(12))
HEALTHY = (
    Report(
        "54538589258 (A100, the counters of NVLink 3)",
        {
            NvLinkErrors: "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-12345678)\n"
            + "".join(f"         Link 0: {name} Errors: 0\n" for name in ("Replay", "Recovery", "CRC Flit", "CRC Data"))
        },
    ),
    Report(
        f"{GITHUB}/vllm-project/vllm-ascend issue 6999 (npu-smi 25.3.rc1, one chip in use)",
        {
            NpuTable: A3.format(
                "25.3.rc1",
                "\n".join(
                    (
                        CHIP.format(0, "OK", "502.6", 75, 0, 0, "9D", 3100),
                        CHIP.format(0, "OK", "-", 51, 1, 1, "9F", 2880),
                    )
                ),
            )
        },
    ),
    Report(
        f"{GITHUB}/amd/node-scraper c3934162, rdma_link_example_data.json (four rails of a Pensando card)",
        {RdmaPorts: adapters(*((f"ionic_{n}", UP, "400 Gb/sec (4X NDR) Ethernet", "P") for n in range(4)))},
    ),
    Report(
        f"{GITHUB}/aws-samples/awsome-distributed-training efa-cheatsheet.md (A100, two blanks before a link)",
        {NvLinks: "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-370ec676)\n" + LINKS.replace("\t ", "  ")},
    ),
    Report(
        "67012191619 (npu-smi 25.5.2; three of sixteen cards)",
        {
            NpuTable: hbm_table(
                ROW.format(0, "910B2C", "94.4", "42", 0, "66", "3412"),
                ROW.format(1, "910B2C", "96.6", "44", 0, "19", "3404"),
                ROW.format(15, "910B2C", "96.4", "43", 0, "D0", "3404"),
            ),
            NpuCompatibility: block("0", BOARD_INFO.format("IT21HMDB02-B2", "25.5.2", "7.8.0.7.220", "0x65")),
        },
        unknown=WITHOUT_PROCESSES,
    ),
    Report(
        "65793104628 (npu-smi 25.5.1)",
        {NpuCompatibility: block("0", BOARD_INFO.format("IT21HMDC_Bin5", "25.5.1", "7.8.0.6.201", "0x60"))},
    ),
    Report(
        f"{MIND}, ascend-faultdiag, kg_parse, npu_info_before.txt",
        {
            NpuHealth: block(
                "0",
                "\tHealth Status                  : OK\n\tError Code                     : NA\n\tError Information              : NA\n",
            ),
            NpuCompatibility: block("0", BOARD_INFO.format("NA", "23.0.5", "7.1.0.7.220", "0x02")),
        },
    ),
    Report(
        f"{MIND}, docs/zh/scheduling, offline reset, after it",
        {
            NpuTable: hbm_table(
                "| 0     xxx                 | OK            | 73.1        37                0    / 0             |\n"
                "| 0                         | 0000:61:00.0  | 0           920  / 13553      0    / 32768         |"
            )
        },
        unknown=WITHOUT_PROCESSES,
    ),
    Report(
        "62689428639 (400G, counters of a healthy link)",
        {RdmaModules: block("mlx5_1", MLX.format(0, "No issue was observed", "\x1b[32m15E-255\x1b[0m"))},
    ),
    Report(
        "60859828466 (eight ports of HDR; raw bit errors that FEC corrects)",
        {
            RdmaModules: "".join(
                block(f"mlx5_{number}", COUNTED.format(rate))
                for number, rate in enumerate(("1E-8", "9E-9", "3E-8", "1E-7", "2E-8", "6E-8", "4E-9", "2E-8"))
            )
        },
    ),
    Report(
        "63417111421 (copper of another vendor)",
        {
            RdmaModules: block(
                "mlx5_0",
                "State                              : Active\nSpeed                              : 100G\n"
                "FEC                                : Standard RS-FEC - RS(528,514)\nStatus Opcode                      : 0\n"
                "Recommendation                     : No issue was observed\nTemperature [C]                    : N/A\n"
                "Voltage [mV]                       : N/A\nIdentifier                         : QSFP28\n"
                "Cable Technology                   : Copper cable, passive, unequalized\n"
                "Rx LOS [per lane]                  : N/A\nEffective Physical BER             : 15E-255\n",
            )
        },
    ),
    Report(
        f"{GITHUB}/Azure/azurehpc-health-checks 0e0a1ac2, test/data/orig_nvsmi8_output.txt",
        {GpuInventory: gpus("535.86.10", *(retired(f"0000000{n}:00:00.0", 0, 0, "No") for n in range(1, 9)))},
    ),
    Report(
        f"{GITHUB}/Azure/azurehpc-health-checks 0e0a1ac2, test/data/good_nvlink_status.txt",
        {
            NvLinks: "GPU 7: NVIDIA A100-SXM4-80GB (UUID: GPU-c7e253b0-c227-6f10-e860-7482c85e7ce8)\n" + LINKS,
        },
    ),
    Report(
        "60859828466 (A100-SXM4-40GB, nvlink -e)",
        {
            NvLinkErrors: "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-fde0a018-ad1a-bbec-ccf6-50a9f64bd178)\n"
            + "".join(
                f"\t Link {n}: Replay Errors: 0\n\t Link {n}: Recovery Errors: 0\n\t Link {n}: CRC Errors: 0\n\n"
                for n in (0, 1)
            )
        },
    ),
    Report(
        f"{GITHUB}/ROCm/device-metrics-exporter afd0fe81, docker/mockdata/nic/ethtool_S_enp68s0.txt",
        {
            EthernetCounters: block("uptime", "864000.00 1.00\n")
            + block(
                "enp68s0 rocep68s0", "     frames_rx_bad_fcs: 0\n     frames_rx_jabber: 0\n     frames_rx_pause: 0\n"
            )
        },
    ),
    Report(
        f"{GITHUB}/Azure/azhpc-diagnostics 85439697, samples/endure (an adapter of a virtual machine)",
        {
            RdmaPorts: json.dumps(
                [
                    {
                        "name": "mlx5_0",
                        "type": "",
                        "board": "",
                        "firmware": "",
                        "ports": [
                            {
                                "number": 1,
                                "state": "4: ACTIVE",
                                "physical": "0: <unknown>",
                                "rate": "5 Gb/sec (1X DDR)",
                                "layer": "Ethernet",
                            }
                        ],
                    }
                ]
            )
        },
    ),
    Report(
        "66446349410 and 4829747145 (links of a server)",
        {
            NpuProduct: '{"pci": {"0000:c1:00.0": "d802"}, "files": [], "refused": [], "tools": [], "chips": null, "newer": []}',
            DeviceHealth: {str(npu): "net health status: Success\n" for npu in range(8)},
            DeviceLinks: {str(npu): "link status: UP\n" for npu in range(8)},
        },
    ),
    Report(
        "62388240498 (npu-smi 26.1.0; one of its NPUs in use)",
        {
            NpuTable: WIDE.format(
                "26.1.0",
                "| 0     910B3               | OK            | 94.8                 48                      0    / 0                |\n"
                "| 0                         | 0000:C2:00.0  | 0                    0    / 0                3403 / 65536            |",
            )
        },
    ),
    Report(
        "55519366107 (npu-smi 26.0.rc1)",
        {
            NpuTable: WIDE.format(
                "26.0.rc1",
                "| 0     910B4               | OK            | 82.6                 32                      0    / 0                |\n"
                "| 0                         | 0000:C1:00.0  | 0                    0    / 0                2871 / 32768            |",
            )
        },
    ),
    Report(
        f"{GITHUB}/microsoft/mscclpp/issues/493",
        {RdmaPorts: adapters(("mlx5_0", UP, ETHERNET, "B"), ("mlx5_1", OFF, UNUSED, "B"))},
    ),
    Report(
        f"{GITHUB}/imbue-ai/cluster-health/issues/4 (eight rails, four Ethernet ports of which two are used)",
        {
            RdmaPorts: adapters(
                *((f"mlx5_{n}", UP, NDR, "A") for n in (0, 3, 4, 5, 6, 9, 10, 11)),
                *((f"mlx5_{n}", UP, ETHERNET, "B") for n in (1, 7)),
                *((f"mlx5_{n}", OFF, UNUSED, "B") for n in (2, 8)),
            )
        },
    ),
    Report(
        f"{GITHUB}/leptonai/gpud/pull/99 (eight rails and an adapter of another type that is switched off)",
        {RdmaPorts: adapters(*((f"mlx5_{n}", UP, NDR, "A") for n in range(8)), ("mlx5_8", OFF, UNUSED, "B"))},
    ),
    Report(
        f"{GITHUB}/NVIDIA/nccl/issues/1866",
        {RdmaPorts: adapters(*((f"mlx5_{n}", UP, ETHERNET, "C") for n in range(5)))},
    ),
    Report(
        f"{GITHUB}/vllm-project/vllm-ascend issue 12980 (npu-smi 26.0.rc2, two chips a card)",
        {
            NpuTable: A3.format(
                "26.0.rc2",
                "\n".join(
                    (
                        CHIP.format(0, "OK", "162.6", 34, 0, 0, "9D", 3419),
                        CHIP.format(0, "OK", "-", 34, 1, 1, "9F", 2874),
                    )
                ),
            )
        },
    ),
    Report(
        f"{GITHUB}/vllm-project/vllm-ascend issue 5588 (npu-smi 25.3.rc1, two chips a card)",
        {
            NpuTable: A3.format(
                "25.3.rc1",
                "\n".join(
                    (
                        CHIP.format(0, "OK", "163.6", 30, 0, 0, "9D", 3180),
                        CHIP.format(0, "OK", "-", 30, 1, 1, "9F", 2896),
                    )
                ),
            )
        },
    ),
    Report(
        f"{GITHUB}/NVIDIA/k8s-test-infra issue 371 (GB200)",
        {NvLinks: nvlinks("NVIDIA GB200", "53.125", 18, *[()] * 4)},
    ),
    Report(
        f"{GITHUB}/Azure/azurehpc-health-checks issue 162 (H100 NVL, 12 of 18 links)",
        {NvLinks: nvlinks("NVIDIA H100 NVL", "26.562", 18, *[(4, 5, 10, 11, 16, 17)] * 2)},
    ),
    Report(
        "66342936307 (Radeon RX 6600)",
        {
            AmdGpus: block("list", json.dumps([{"gpu": 0, "bdf": "0000:0b:00.0", "uuid": "x"}]))
            + block(
                "metric --ecc",
                json.dumps(
                    [
                        {
                            "gpu": 0,
                            "ecc": {
                                "total_correctable_count": 0,
                                "total_uncorrectable_count": 0,
                                "total_deferred_count": 0,
                                "cache_correctable_count": "N/A",
                                "cache_uncorrectable_count": "N/A",
                            },
                        }
                    ]
                ),
            )
            + block(
                "static --asic --bus --driver",
                json.dumps(
                    [
                        {
                            "gpu": 0,
                            "asic": {"market_name": "Navi 23 [Radeon RX 6600/6600 XT"},
                            "driver": {"name": "amdgpu", "version": "7.0.0-3-pve"},
                            "bus": {"bdf": "0000:0b:00.0", "max_pcie_width": 16},
                        }
                    ]
                ),
            )
            + block(
                "static --partition",
                json.dumps([{"gpu": 0, "partition": {"compute_partition": "N/A", "memory_partition": "N/A"}}]),
            )
        },
    ),
    Report(
        f"{GITHUB}/imbue-ai/cluster-health issue 4 (second ports of Ethernet cards without cable)",
        {
            RdmaPorts: adapters(
                *((f"mlx5_{n}", UP, NDR, "MT_838") for n in (0, 3, 4, 5, 6, 9, 10, 11)),
                *((f"mlx5_{n}", UP, ETHERNET, "MT_225") for n in (1, 7)),
                *((f"mlx5_{n}", OFF, UNUSED, "MT_225") for n in (2, 8)),
            )
        },
    ),
    Report(
        f"{GITHUB}/kvcache-ai/Mooncake issue 1999 (a card of its own board without cable)",
        {
            RdmaPorts: adapters(
                *((f"mlx5_{n}", UP, "200 Gb/sec (4X HDR) Ethernet", "MT_880") for n in (0, 1)),
                ("mlx5_10", OFF, UNUSED, "MT_531"),
            )
        },
    ),
    Report(
        "21333426086 (the same, once the adapter takes it)",
        {
            EthernetModules: finisar(
                ("42.068", "37.926", "38.870", "37.968"),
                ("1.0778 mW / 0.33", "1.0394 mW / 0.17", "0.9198 mW / -0.36", "1.1533 mW / 0.62"),
                ("0.9969 mW / -0.01", "0.9100 mW / -0.41", "0.9101 mW / -0.41", "0.9713 mW / -0.13"),
            )
        },
    ),
    Report(
        "12126538394 (H100 PCIe with bridges: 12 of its links)",
        {NvLinks: nvlinks("NVIDIA H100 PCIe", "26.562", 17, (4, 9, 10, 15, 16))},
    ),
    Report(
        "18180642103 (two H100 PCIe with bridges)",
        {
            NvLinks: nvlinks("NVIDIA H100 PCIe", "26.562", 18, *[(4, 5, 10, 11, 16, 17)] * 2),
            GpuTopology: "        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
            "GPU0     X      NV12    32-63,96-127    1               N/A\n"
            "GPU1    NV12     X      32-63,96-127    1               N/A\n\nLegend:\n\n  X    = Self\n",
        },
    ),
    Report(
        "2324800492 (H100, nvlink -e)",
        {
            NvLinkErrors: "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-abcdefab)\n         Link 0: Replay Errors: 0\n"
            "         Link 0: Recovery Errors: 0\n         Link 0: CRC Errors: 0\n"
        },
    ),
    Report(
        "68598607334 (910B3, npu-smi 25.5.1)",
        {
            NpuTable: hbm_table(
                "| 0     910B3               | OK            | 102.8       45                0    / 0             |\n"
                "| 0                         | 0000:C1:00.0  | 0           0    / 0          3445 / 65536         |"
            )
        },
        unknown=WITHOUT_PROCESSES,
    ),
    *(
        Report(
            f"55597941938 (BlueField-3 with copper, {device})",
            {RdmaModules: block(device, COPPER)},
        )
        for device in ("mlx5_0", "mlx5_1")
    ),
    Report(
        "58866378813 (910B: 16 GT/s and 16 lanes, as the most)",
        {PcieLinks: link_of("0000:c1:00.0", "19e5:d802", ("16", "16.0 GT/s PCIe", "16", "16.0 GT/s PCIe"), "1200")},
    ),
    Report(
        f"{GITHUB}/janhq/jan/issues/183 (an idle RTX 4090 at 2.5 of 16 GT/s)",
        {PcieLinks: link_of("0000:01:00.0", "10de:2684", ("16", "2.5 GT/s PCIe", "16", "16.0 GT/s PCIe"))},
    ),
    Report(
        f"{GITHUB}/tinygrad/open-gpu-kernel-modules/issues/6 (the same, in a workstation)",
        {PcieLinks: link_of("0000:62:00.0", "10de:2684", ("16", "2.5 GT/s PCIe", "16", "16.0 GT/s PCIe"))},
    ),
    Report(
        f"{GITHUB}/ROCm/rocm-systems/pull/2987 (MI350X)",
        {
            AmdGpus: block("list", json.dumps([{"gpu": 0, "bdf": "0000:05:00.0"}]))
            + block(
                "metric --ecc",
                json.dumps([{"gpu": 0, "ecc": {"total_uncorrectable_count": 0, "total_deferred_count": 0}}]),
            )
            + block(
                "static --asic --bus --driver",
                json.dumps(
                    {
                        "gpu_data": [
                            {
                                "gpu": 0,
                                "asic": {"market_name": "AMD Instinct MI350X"},
                                "bus": {"bdf": "0000:05:00.0", "max_pcie_width": 16, "slot_type": "OAM"},
                                "driver": {"name": "amdgpu", "version": "6.18.3"},
                            }
                        ]
                    }
                ),
            )
            + block(
                "static --ras",
                json.dumps({"gpu_data": [{"gpu": 0, "ras": {"bad_page_threshold_exceeded": "N/A"}}]}),
            )
        },
    ),
)
