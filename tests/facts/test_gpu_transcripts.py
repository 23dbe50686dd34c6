"""What nvidia-smi and the kernel print on real machines, each with the public page that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.gpu import FabricManager, GpuInventory, GpuTopology, NvidiaSmi, NvLinks
from doctor.facts.gpu_report import Gpu
from doctor.facts.kernel_log import KernelLog, LogLine
from doctor.facts.xid import xid_events
from tests.facts.answers import said

GITHUB = "https://github.com"
REPORTS: dict[str, str] = json.loads(
    Path(__file__).with_name("recorded").joinpath("nvidia_smi_reports.json").read_text()
)
"""Reports of ``nvidia-smi -q -x`` of drivers 418 to 595, by their address; elements that are not read are left out."""
EXPECTED: dict[str, dict[str, Any]] = {
    "a100-sxm4-v12.xml": {"mig": "Enabled", "ecc_errors": 0, "persistence": False, "temperature_limit": 89},
    "a10g.xml": {"pcie_width": 8, "pcie_width_max": 16, "row_remap_failed": False, "memory": 23028},
    "gtx-1070-ti.xml": {"ecc_errors": None, "persistence": None, "temperature": 39},
    "gtx-1660-ti.xml": {"driver": "418.43", "throttles": (), "pcie_generation_max": 3},
    "quadro-p2000-v12.xml": {"persistence": True, "is_data_center": False},
    "quadro-p400.xml": {"power_limit": None, "memory": 1998},
    "rtx-3060-v12.xml": {"driver": "570.124.04", "mig": ""},
    "rtx-3080-v12.xml": {"power_limit": 336.0, "power_limit_default": 320.0},
    "rtx-3080-v13.xml": {"driver": "595.58.03", "fabric_state": ""},
    "rtx-3090-v12.xml": {"power_limit": 200.0, "bus": "0000:00:10.0"},
    "rtx-4000-sff-ada-v13.xml": {"persistence": True, "reset_required": False},
    "tesla-t4.xml": {"is_data_center": True, "page_retirement_pending": False, "ecc_errors": 0},
}


@pytest.mark.parametrize("address", REPORTS, ids=lambda address: address.rpartition("/")[2])
def test_reports_of_real_gpus(address: str) -> None:
    inventory = said(GpuInventory, one=Output(out=REPORTS[address]))
    (gpu,) = inventory.gpus
    values = EXPECTED[address.rpartition("/")[2]]
    assert {name: getattr(gpu, name) for name in values} == values
    assert gpu.uuid.startswith("GPU-")
    assert inventory.unread == {}
    assert said(NvidiaSmi, one=Output(out=REPORTS[address])).kind == ""


def test_real_processes_and_their_kinds() -> None:
    reports = {address.rpartition("/")[2]: text for address, text in REPORTS.items()}
    (ada,) = said(GpuInventory, one=Output(out=reports["rtx-4000-sff-ada-v13.xml"])).gpus
    assert [(process.kind, process.mebibytes) for process in ada.processes] == [
        ("G", 410),
        ("G", 451),
        ("C", 160),
        ("C+G", 183),
    ]


def in_report(elements: str) -> Output:
    """A report with one GPU that has these elements."""
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    gpu = f'<gpu id="00000000:61:00.0"><product_name>NVIDIA</product_name><uuid>GPU-1</uuid>{elements}</gpu>'
    return Output(out=f"{head}<nvidia_smi_log><driver_version>590.44.01</driver_version>{gpu}</nvidia_smi_log>\n")


ELEMENTS = [
    # NVIDIA RTX PRO 6000 Blackwell, driver 590 (telegraf, pro-6000-maxq-blackwell-v13.xml): a distance to the limit.
    (
        (
            "<temperature><gpu_temp>24 C</gpu_temp><gpu_temp_tlimit>68 C</gpu_temp_tlimit>"
            "<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>"
        ),
        {"temperature": 24, "temperature_limit": 94},
    ),
    ("<gpu_recovery_action>None</gpu_recovery_action>", {"recovery_action": ""}),
    (
        (
            "<ecc_errors><volatile><sram_uncorrectable_parity>N/A</sram_uncorrectable_parity>"
            "<dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>"
        ),
        {"ecc_errors": None},
    ),
    ("<persistence_mode>Requested functionality has been deprecated</persistence_mode>", {"persistence": None}),
    # netdata, testdata/rtx-pro-6000-driver-580.xml: blanks around the values.
    ("<temperature><gpu_temp> 37 C </gpu_temp></temperature>", {"temperature": 37, "temperature_limit": None}),
    # NVIDIA GB10, https://github.com/marimo-team/marimo/pull/6822: the memory is the host's.
    ("<fb_memory_usage><total>N/A</total></fb_memory_usage>", {"memory": None}),
    ("<fb_memory_usage><total>Not Supported</total></fb_memory_usage>", {"memory": None}),
    # https://github.com/leptonai/gpud/pull/80 and pull/128: pending rows, and GPUs without row remapping.
    (
        (
            "<remapped_rows><remapped_row_unc>4</remapped_row_unc><remapped_row_pending>Yes</remapped_row_pending>"
            "</remapped_rows>"
        ),
        {"row_remap_pending": True, "row_remap_failed": False},
    ),
    ("<remapped_rows>N/A</remapped_rows>", {"row_remap_pending": False, "row_remap_failed": False}),
    # https://github.com/siderolabs/extensions/pull/717: a GPU that waits for the fabric manager.
    ("<fabric><state>In Progress</state><status>N/A</status></fabric>", {"fabric_state": "In Progress"}),
    # https://github.com/bottlerocket-os/bottlerocket/pull/3873: A100 reports no state although all is well.
    ("<fabric><state>N/A</state><status>N/A</status></fabric>", {"fabric_state": "", "fabric_status": ""}),
    # Four RTX PRO 6000 Blackwell Server Edition, driver 595.58.03 (public file 56325051947), as the report has it.
    (
        (
            "<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile><aggregate>"
            "<sram_threshold_exceeded>No</sram_threshold_exceeded></aggregate><channel_repair_pending>No"
            "</channel_repair_pending><tpc_repair_pending>No</tpc_repair_pending><unrepairable_memory>No"
            "</unrepairable_memory></ecc_errors>"
        ),
        {"ecc_errors": 0, "caches_failing": False, "repair_pending": False, "is_unrepairable": False},
    ),
    # Public file 68598815792: the last of these is N/A.
    (
        (
            "<ecc_errors><tpc_repair_pending>No</tpc_repair_pending><unrepairable_memory>N/A</unrepairable_memory>"
            "</ecc_errors>"
        ),
        {"ecc_errors": None, "repair_pending": False, "is_unrepairable": False},
    ),
    (
        (
            "<ecc_errors><aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded></aggregate>"
            "<channel_repair_pending>Yes</channel_repair_pending></ecc_errors>"
        ),
        {"caches_failing": True, "repair_pending": True},
    ),
    # https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/626: GB200, completed and unhealthy.
    (
        (
            "<fabric><state>Completed</state><status>Success</status><cliqueId>2</cliqueId>"
            "<clusterUuid>dc6e40c4-d722-4357-9ba6-5291dd461278</clusterUuid><health><summary>Unhealthy</summary>"
            "<bandwidth>Full</bandwidth></health></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_faults": ("summary: Unhealthy",)},
    ),
    # https://github.com/Azure/azhpc-images/pull/506
    (
        (
            "<fabric><state>Completed</state><status>Insufficient Resources</status><cliqueId>0</cliqueId>"
            "<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_status": "Insufficient Resources", "fabric_faults": ()},
    ),
    # https://github.com/leptonai/gpud/pull/1106: GB200, no health; public file 42511004217: all N/A.
    (
        (
            "<fabric><state>Completed</state><status>Success</status><cliqueId>4026</cliqueId><health>"
            "<bandwidth>Not Supported</bandwidth><route_unhealthy>Not Supported</route_unhealthy></health></fabric>"
        ),
        {"fabric_state": "Completed", "fabric_faults": ()},
    ),
    (
        (
            "<fabric><state>N/A</state><health><summary>N/A</summary><bandwidth>N/A</bandwidth>"
            "<route_recovery_in_progress>N/A</route_recovery_in_progress>"
            "<incorrect_configuration>N/A</incorrect_configuration></health></fabric>"
        ),
        {"fabric_state": "", "fabric_faults": ()},
    ),
    # https://github.com/NVIDIA/k8s-test-infra/pull/685: the values of a sound and of a faulty GB300.
    (
        (
            "<fabric><state>Completed</state><health><summary>Healthy</summary><bandwidth>Full</bandwidth>"
            "<route_recovery_in_progress>False</route_recovery_in_progress><route_unhealthy>False</route_unhealthy>"
            "<incorrect_configuration>None</incorrect_configuration></health></fabric>"
        ),
        {"fabric_faults": ()},
    ),
    (
        (
            "<fabric><health><summary>Unhealthy</summary><route_unhealthy>True</route_unhealthy>"
            "<incorrect_configuration>Insufficient Nvlinks</incorrect_configuration></health></fabric>"
        ),
        {
            "fabric_faults": (
                "summary: Unhealthy",
                "route unhealthy: True",
                "incorrect configuration: Insufficient Nvlinks",
            )
        },
    ),
    (
        "<ecc_errors><volatile><dram_uncorrectable>[Unknown Error]</dram_uncorrectable></volatile></ecc_errors>",
        {"ecc_errors": None},
    ),
]


@pytest.mark.parametrize(("elements", "values"), ELEMENTS)
def test_elements_of_real_reports(elements: str, values: dict[str, Any]) -> None:
    (gpu,) = said(GpuInventory, one=in_report(elements)).gpus
    assert isinstance(gpu, Gpu)
    assert {name: getattr(gpu, name) for name in values} == values


FAILURES = [
    (
        f"{GITHUB}/JosephKJ/OWOD/issues/81",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system",
        15,
        ("lost", ("0000:02:00.0",)),
    ),
    (
        f"{GITHUB}/AlexeyAB/darknet/issues/86",
        "Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot\n the system to recover",
        15,
        ("lost", ("0000:03:00.0",)),
    ),
    (
        f"{GITHUB}/NVIDIA/dcgm-exporter/issues/604",
        "Unable to determine the device handle for GPU 000:BA:80.0: Unknown Error",
        255,
        ("lost", ("000:ba:80.0",)),
    ),
    (
        f"{GITHUB}/NVIDIA/open-gpu-kernel-modules/issues/387",
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error.",
        255,
        ("lost", ("0000:0b:00.0",)),
    ),
    (
        f"{GITHUB}/pdbear/syno_nvidia_gpu_driver/issues/22",
        "Unable to determine the device handle for GPU0000:07:00.0: Unknown Error",
        255,
        ("lost", ("0000:07:00.0",)),
    ),
    (
        f"{GITHUB}/tinygrad/open-gpu-kernel-modules/issues/47",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124",
        18,
        ("mismatch", ()),
    ),
    (
        f"{GITHUB}/lyulyul/shine-cluster/issues/30",
        "Failed to initialize NVML: Driver/library version mismatch",
        18,
        ("mismatch", ()),
    ),
    (
        f"{GITHUB}/NVIDIA/nvidia-container-toolkit/issues/817",
        "Failed to initialize NVML: Unknown Error",
        255,
        ("other", ()),
    ),
    (
        "https://developer.nvidia.com/nvidia-system-management-interface, return value 9",
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n"
        ),
        9,
        ("driver", ()),
    ),
    ("the same, return value 6", "No devices were found\n", 6, ("no-devices", ())),
    ("the same, return value 4", "Failed to initialize NVML: Insufficient Permissions\n", 4, ("denied", ())),
    (
        "the same, return value 12",
        (
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
            "Driver is properly installed and present in your system.\n"
        ),
        12,
        ("other", ()),
    ),
]


@pytest.mark.parametrize(("source", "text", "code", "expected"), FAILURES)
def test_failures_of_nvidia_smi(source: str, text: str, code: int, expected: tuple[str, tuple[str, ...]]) -> None:
    output = Output(out=text, code=code)
    tool = said(NvidiaSmi, one=output)
    assert (tool.kind, tool.lost) == expected
    assert tool.text.startswith(text.partition("\n")[0][:60])
    inventory = said(GpuInventory, one=output)
    if expected[0] == "no-devices":
        assert inventory.gpus == ()
    else:
        assert isinstance(inventory, Unreadable)


def test_a_hang_is_a_failure_of_the_tool() -> None:
    hang = Output(ended="timeout", seconds=30)
    assert said(NvidiaSmi, one=hang) == NvidiaSmi(kind="hang", text="no answer in 30 s")
    why = said(GpuInventory, one=hang)
    assert isinstance(why, Unreadable)
    assert why.root_cause == "gpu-tool-fails"


def test_a_damaged_information_rom_does_not_hide_the_report() -> None:
    """Return value 14, with a warning after the report (manual of nvidia-smi)."""
    report = in_report("")
    damaged = Output(out=report.out + "WARNING: infoROM is corrupted at gpu 0000:61:00.0\n", code=14)
    assert len(said(GpuInventory, one=damaged).gpus) == 1
    assert said(NvidiaSmi, one=damaged).kind == ""


def test_one_lost_gpu_beside_others_that_answer() -> None:
    report = in_report("<fan_speed>[GPU is lost]</fan_speed>")
    inventory = said(GpuInventory, one=report)
    assert inventory.unread == {"GPU 0 (0000:61:00.0)": "GPU is lost"}
    assert said(NvidiaSmi, one=report).lost == ("0000:61:00.0",)


@pytest.mark.parametrize(
    "text",
    [
        "<nvidia_smi_log><gpu>",
        "<nvidia_smi_log><!ENTITY a 'b'></nvidia_smi_log>",
        "<nvidia_smi_log>\x00</nvidia_smi_log>",
        "<nvidia_smi_log></nvidia_smi_log>",
        "",
        "hello",
    ],
)
def test_what_is_no_report_is_never_a_healthy_host(text: str) -> None:
    assert isinstance(said(GpuInventory, one=Output(out=text)), Unreadable)


NVLINKS = [
    # https://github.com/Azure/azhpc-diagnostics/issues/73
    (
        (
            "GPU 3: Tesla V100-SXM2-32GB (UUID: ...)\n         Link 0: 25.781 GB/s\n         Link 1: 25.781 GB/s\n"
            "         Link 2: 25.781 GB/s\n         Link 3: <inactive>\n         Link 4: 25.781 GB/s\n"
            "         Link 5: <inactive>\n"
        ),
        {3: 4},
        {3: (3, 5)},
    ),
    # https://github.com/leptonai/gpud/issues/1085
    (
        (
            "GPU 1: NVIDIA B200 (UUID: GPU-x)\n\t Link 0: 50 GB/s\nGPU 2: NVIDIA B200 (UUID: GPU-xxx)\n"
            "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        ),
        {1: 1, 2: 0},
        {},
    ),
    # NVIDIA/open-gpu-kernel-modules issue 1150: every GPU of a host after Xid 149
    (
        (
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"
            "NVML: Unable to retrieve NVLink information as all links are inActive\n"
        ),
        {0: 0},
        {},
    ),
    # https://github.com/NVIDIA/k8s-test-infra/issues/371
    ("GPU 0: NVIDIA GB200 (UUID: GPU-d1)\n         Link 0: 53.125 GB/s\n         Link 1: 53.125 GB/s\n", {0: 2}, {}),
]


@pytest.mark.parametrize(("text", "active", "inactive"), NVLINKS)
def test_real_nvlinks(text: str, active: dict[int, int], inactive: dict[int, tuple[int, ...]]) -> None:
    links = said(NvLinks, one=Output(out=text))
    assert (links.active, links.inactive) == (active, inactive)


def test_gpus_without_nvlinks_have_none() -> None:
    assert isinstance(said(NvLinks, one=Output(out="")), Absent)
    assert isinstance(said(NvLinks, one=Output(out="GPU 0: NVIDIA L4 (UUID: GPU-1)\n")), Absent)


TOPOLOGIES = [
    # https://github.com/NVIDIA/nccl/issues/1617
    (
        (
            "        GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
            "GPU0     X      NV6     PIX     SYS     6,14,22,30      3               N/A\n"
            "GPU1    NV6      X      SYS     PIX     4,12,20,28      1               N/A\n"
            "NIC0    PIX     SYS      X      SYS\nNIC1    SYS     PIX     SYS      X \n\nLegend:\n\n  X    = Self\n"
        ),
        (
            ("GPU0", "X", "NV6", "PIX", "SYS"),
            ("GPU1", "NV6", "X", "SYS", "PIX"),
            ("NIC0", "PIX", "SYS", "X", "SYS"),
            ("NIC1", "SYS", "PIX", "SYS", "X"),
        ),
    ),
    # https://github.com/XueSongTap/XueSongTap.github.io, _posts/2024-01-04-nvidia-smi-more.md
    (
        (
            "        GPU0    GPU1    CPU Affinity    NUMA Affinity\nGPU0     X      PHB     0-11            N/A\n"
            "GPU1    PHB      X      0-11            N/A\n"
        ),
        (("GPU0", "X", "PHB"), ("GPU1", "PHB", "X")),
    ),
]


@pytest.mark.parametrize(("text", "links"), TOPOLOGIES)
def test_real_topologies(text: str, links: tuple[tuple[str, ...], ...]) -> None:
    assert said(GpuTopology, one=Output(out=text)).links == links
    coloured = text.replace("GPU0    GPU1", "\x1b[4mGPU0    GPU1", 1).replace("Affinity\n", "Affinity\x1b[0m\n", 1)
    assert said(GpuTopology, one=Output(out=coloured)).links == links


def test_fabric_managers() -> None:
    """The version's line: https://github.com/leptonai/gpud, older parseFabricManagerVersion."""
    text = "switches 6\ninit systemd\nprocess yes\nversion Fabric Manager version is : 535.161.08\n"
    running = said(FabricManager, one=Output(out=text + "LoadState=loaded\nActiveState=active\n"))
    assert (running.version, running.is_running, running.switches) == ("535.161.08", True, 6)
    stopped = said(
        FabricManager, one=Output(out="switches 6\ninit systemd\nLoadState=not-found\nActiveState=inactive\n")
    )
    assert (stopped.is_installed, stopped.is_running) == (False, False)
    assert isinstance(said(FabricManager, one=Output(out="switches 6\ninit bash\n")), Absent)
    assert isinstance(said(FabricManager, one=Output(out="switches x\n")), Unreadable)


XIDS = [
    # https://github.com/leptonai/gpud, components/accelerator/nvidia/xid/testdata/dmesg-with-xid-119.log
    (
        (
            "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC "
            "response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4)."
        ),
        ("Xid", 119, "0000:9b:00"),
    ),
    # https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1151
    ("NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off the bus.", ("Xid", 79, "0000:2b:00")),
    # https://github.com/leptonai/gpud, components/accelerator/nvidia/xid/nvlink_logs_test.go
    (
        "NVRM: Xid (PCI:0000:04:00): 145, RLW_REMAP Fatal XC0 i0 Link 00 (0x00000004 0x00000040 0x00000000 0x00000000)",
        ("Xid", 145, "0000:04:00"),
    ),
    # https://pastebin.com/xJaypMZt: the form of drivers before 340
    ("NVRM: Xid (0000:01:00): 79, C 00000005 SC 00000007 M 00001ffc Data ffffffff", ("Xid", 79, "0000:01:00")),
    # NVIDIA, Dynamic Page Retirement, Visibility
    (
        "NVRM: Xid (PCI:0000:03:00): 48, An uncorrectable double bit error (DBE) has been detected",
        ("Xid", 48, "0000:03:00"),
    ),
    # https://github.com/leptonai/gpud, sxid: a fatal and a non-fatal error
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error (First)",
        ("SXid", 24007, "0000:c3:00.0"),
    ),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", None),
    # stas00/ml-engineering, compute/accelerator/nvidia/debug.md: a row was replaced, as it should
    (
        "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        None,
    ),
    # a fault of the program, not of the GPU (find_string "NVRM: Xid (PCI:")
    ("NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault", None),
    # Public files 62599419737, 52408671182, 68445503068, 58732587235: the recommendation, by drivers 570 to 595
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)",
        ("Xid", 154, "0000:01:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        ("Xid", 154, "0000:02:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)",
        ("Xid", 154, "0000:01:00"),
    ),
    (
        "NVRM: Xid (PCI:0000:00:1e): 154, GPU recovery action changed from 0x0 (None) to 0x1 (Drain and Reset)",
        ("Xid", 154, "0000:00:1e"),
    ),
    (
        "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        None,
    ),
    # https://pastebin.com/NGng33SB
    ("NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000", None),
]


@pytest.mark.parametrize(("message", "expected"), XIDS)
def test_real_xids(message: str, expected: tuple[str, int, str] | None) -> None:
    events = xid_events(KernelLog(uptime=100.0, lines=(LogLine(5.0, message),)))
    assert [(event.kind, event.code, event.device) for event in events] == ([expected] if expected else [])


RESET_NEEDED = (
    "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
)
RECOVERED = "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
PROGRAM = "NVRM: Xid (PCI:0000:02:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault"
LOST = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("messages", "codes"),
    [
        ([PROGRAM, RESET_NEEDED], [154]),
        ([LOST, RESET_NEEDED], [79]),
        ([RESET_NEEDED, RECOVERED], []),
        ([RESET_NEEDED, RECOVERED, RESET_NEEDED], [154]),
    ],
)
def test_the_recommendation_counts_where_no_error_explains_it(messages: list[str], codes: list[int]) -> None:
    """Xid 154 follows the error that it is about (catalog: "informational only regarding another Xid")."""
    lines = tuple(LogLine(100.0 - index, message) for index, message in enumerate(messages))
    assert [event.code for event in xid_events(KernelLog(uptime=200.0, lines=lines))] == codes


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ("0x2 (Node Reboot Required)", "restart the host"),
        ("0x1 (GPU Reset Required)", "drain the host and reset the GPU"),
        ("0x4 (Drain and Reset)", "drain the host and reset the GPU"),
        ("0x3 (Drain P2P)", "end the programs that use NVLink, and reset the GPU"),
        ("0x9 (A name of a later driver)", "drain the host and reset the GPU"),
    ],
)
def test_the_recommended_action(state: str, action: str) -> None:
    text = f"NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x0 (None) to {state}"
    (event,) = xid_events(KernelLog(uptime=100.0, lines=(LogLine(5.0, text),)))
    assert event.action == action


def test_there_are_many_transcripts() -> None:
    assert len(REPORTS) + len(ELEMENTS) + len(FAILURES) + len(NVLINKS) + len(TOPOLOGIES) + len(XIDS) >= 40


@pytest.mark.parametrize("fact", [NvLinks, GpuTopology])
def test_a_failure_of_the_whole_tool_names_the_check_that_reports_it(fact: Any) -> None:
    for _, text, code, (kind, _) in FAILURES:
        why = said(fact, one=Output(out=text, code=code))
        causes = {"lost": "gpu-lost", "mismatch": "gpu-driver-mismatch", "driver": "gpu-driver-not-loaded"}
        assert isinstance(why, Absent), text
        if kind in causes:
            assert isinstance(why, Unreadable)
            assert why.root_cause == causes[kind]
    hang = said(fact, one=Output(ended="timeout", seconds=30))
    assert isinstance(hang, Unreadable)
    assert hang.root_cause == "gpu-tool-fails"
