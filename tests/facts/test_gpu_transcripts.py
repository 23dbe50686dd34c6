"""What nvidia-smi and the kernel print on real machines, each with the public page that shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.catalog import bundled_folder, load_checks
from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.gpu import GpuInventory, NvidiaSmi
from doctor.facts.gpu_report import Gpu
from doctor.facts.kernel_log import KernelLog, LogLine
from doctor.facts.nvlink import FabricManager, GpuTopology, NvLinkErrors, NvLinks
from doctor.facts.xid import xid_events
from tests.checks.gpu_hosts import H100, cards
from tests.checks.run_check import Facts, messages, run_check
from tests.facts.answers import read_outputs
from tests.facts.gpu_transcripts import ELEMENTS, FAILURES, NVLINKS, TOPOLOGIES, WITHOUT_NVLINK, XIDS

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
    "rtx-3080-v12.xml": {"power_limit": 336.0},
    "rtx-3080-v13.xml": {"driver": "595.58.03", "fabric_state": ""},
    "rtx-3090-v12.xml": {"power_limit": 200.0, "bus": "0000:00:10.0"},
    "rtx-4000-sff-ada-v13.xml": {"persistence": True, "reset_required": False},
    "tesla-t4.xml": {"is_data_center": True, "page_retirement_pending": False, "ecc_errors": 0},
}


@pytest.mark.parametrize("address", REPORTS, ids=lambda address: address.rpartition("/")[2])
def test_reports_of_real_gpus(address: str) -> None:
    inventory = read_outputs(GpuInventory, one=Output(out=REPORTS[address]))
    (gpu,) = inventory.gpus
    values = EXPECTED[address.rpartition("/")[2]]
    assert {name: getattr(gpu, name) for name in values} == values
    assert gpu.uuid.startswith("GPU-")
    counted = re.search("<attached_gpus>([0-9]+)", REPORTS[address])
    lacking = int(counted[1]) - 1 if counted else 0  # of one, whose author left the others out
    assert [*inventory.unread] == ([f"{lacking} more GPUs"] if lacking else [])
    assert read_outputs(NvidiaSmi, one=Output(out=REPORTS[address])).kind == ""


@pytest.mark.parametrize("address", REPORTS, ids=lambda address: address.rpartition("/")[2])
def test_a_sound_gpu_is_accused_of_its_settings_alone(address: str) -> None:
    """Of all checks that need the report alone; what uses it, and its persistence mode, are true of these machines."""
    output = Output(out=REPORTS[address])
    facts = Facts({"w1": [read_outputs(GpuInventory, one=output), read_outputs(NvidiaSmi, one=output)]})
    checks = [check for check in load_checks() if check.facts and check.facts <= {GpuInventory, NvidiaSmi}]
    found = {check.name for check in checks if evaluate_check(check, ("w1",), facts, {}).findings}
    assert len(checks) > 15
    assert found <= {"gpu-persistence-off", "gpu-busy"}


def test_real_processes_and_their_kinds() -> None:
    reports = {address.rpartition("/")[2]: text for address, text in REPORTS.items()}
    (ada,) = read_outputs(GpuInventory, one=Output(out=reports["rtx-4000-sff-ada-v13.xml"])).gpus
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


@pytest.mark.parametrize(("elements", "values"), ELEMENTS)
def test_elements_of_real_reports(elements: str, values: dict[str, Any]) -> None:
    (gpu,) = read_outputs(GpuInventory, one=in_report(elements)).gpus
    assert isinstance(gpu, Gpu)
    assert {name: getattr(gpu, name) for name in values} == values


@pytest.mark.parametrize(("name", "used"), [("NVIDIA GH200 480GB", None), ("NVIDIA H100 80GB HBM3", 60000)])
def test_memory_in_use_where_it_is_not_the_hosts(name: str, used: int | None) -> None:
    """That of a GH200 is a NUMA node of Linux (NVIDIA, Grace Performance Tuning Guide), which keeps files there."""
    memory = "<fb_memory_usage><total>97871 MiB</total><used>60000 MiB</used></fb_memory_usage>"
    report = in_report(memory).out.replace("<product_name>NVIDIA<", f"<product_name>{name}<")
    assert read_outputs(GpuInventory, one=Output(out=report)).gpus[0].memory_used == used


@pytest.mark.parametrize(("source", "text", "code", "expected"), FAILURES)
def test_failures_of_nvidia_smi(source: str, text: str, code: int, expected: tuple[str, tuple[str, ...]]) -> None:
    output = Output(out=text, code=code)
    tool = read_outputs(NvidiaSmi, one=output)
    assert (tool.kind, tool.lost) == expected
    assert tool.text.startswith(text.partition("\n")[0][:60])
    inventory = read_outputs(GpuInventory, one=output)
    if expected[0] == "no-devices":
        assert inventory.gpus == ()
    else:
        assert isinstance(inventory, Unreadable)


def test_a_hang_is_a_failure_of_the_tool() -> None:
    hang = Output(ended="timeout", seconds=30)
    assert read_outputs(NvidiaSmi, one=hang) == NvidiaSmi(kind="hang", text="no answer in 30 s")
    why = read_outputs(GpuInventory, one=hang)
    assert isinstance(why, Unreadable)
    assert why.root_cause == "gpu-tool-fails"


@pytest.mark.parametrize(
    ("after", "err", "code", "damaged"),
    [
        ("WARNING: infoROM is corrupted at gpu 0000:B3:00.0", "", 0, ("0000:b3:00.0",)),
        ("", "WARNING: infoROM is corrupted at gpu 0000:00:1E.0\n", 14, ("0000:00:1e.0",)),
        # Public files 5440922420, 7162708867 and 6186493108
        ("WARNING: infoROM is corrupted at gpu 0000:67:00.0", "", 0, ("0000:67:00.0",)),
        ("", "WARNING: infoROM is corrupted at gpu 0000:01:00.0  \n", 14, ("0000:01:00.0",)),
        ("WARNING: infoROM is corrupted at gpu 0000:00:05.0\n", "", 14, ("0000:00:05.0",)),
        ("", "", 14, ("",)),
        ("", "", 0, ()),
    ],
)
def test_a_damaged_information_rom(after: str, err: str, code: int, damaged: tuple[str, ...]) -> None:
    """Return value 14 (manual of nvidia-smi); https://github.com/NVIDIA/gpu-operator/issues/20, pytorch pull 87464."""
    output = Output(out=in_report("").out + after, err=err, code=code)
    assert len(read_outputs(GpuInventory, one=output).gpus) == 1
    tool = read_outputs(NvidiaSmi, one=output)
    assert (tool.kind, tool.damaged, tool.beside) == ("", damaged, "")
    found = run_check("gpu-inforom-corrupted", {"w1": [tool]}).findings
    assert [finding.values["device"] for finding in found] == [device or None for device in damaged]


@pytest.mark.parametrize(
    ("before", "err", "code", "beside"),
    [
        ("", "", 255, "exit status 255"),
        ("", "some words\n", 3, "exit status 3: some words"),
        ("", "Failed to initialize a part of NVML: Unknown Error\n", 0, "Failed to initialize a part of NVML"),
        ("", "ERROR: ld.so: object 'libx.so' from LD_PRELOAD cannot be preloaded: ignored.\n", 0, ""),
        ("bash: warning: setlocale: LC_ALL: cannot change locale (C.UTF-8)\n", "", 0, ""),
        ("", "nvidia-smi: /lib/libcrypto.so.3: no version information available\n", 0, ""),
    ],
)
def test_what_stands_around_a_report_is_judged(before: str, err: str, code: int, beside: str) -> None:
    tool = read_outputs(NvidiaSmi, one=Output(out=before + in_report("").out, err=err, code=code))
    assert tool.beside.startswith(beside) and bool(tool.beside) == bool(beside)
    findings = run_check("gpu-tool-fails", {"w1": [tool, cards()]}).findings
    assert [finding.is_warning for finding in findings] == [True] * bool(beside)


FAILED_ELEMENTS = [
    # The words of nvmlErrorString and of nvidia-smi's table, in the elements of an H100's report.
    ("<ecc_errors><volatile><dram_uncorrectable>Unknown Error</dram_uncorrectable></volatile></ecc_errors>", False),
    ("<temperature><gpu_temp>Unknown Error</gpu_temp></temperature>", False),
    ("<remapped_rows><remapped_row_failure>[Unknown Error]</remapped_row_failure></remapped_rows>", False),
    ("<fb_memory_usage><total>ERR!</total></fb_memory_usage>", False),
    ("<gpu_recovery_action>Unknown Error</gpu_recovery_action>", False),
    ("<gpu_reset_status><reset_required>[GPU requires reset]</reset_required></gpu_reset_status>", False),
    ("<gpu_reset_status><drain_and_reset_recommended>ERR!</drain_and_reset_recommended></gpu_reset_status>", False),
    ("<fabric><state>Unknown Error</state></fabric>", False),
    ("<persistence_mode>Unknown Error</persistence_mode>", True),
    ("<power_readings><power_limit>[Unknown Error]</power_limit></power_readings>", True),
]
JUDGES = ("gpu-ecc-errors", "gpu-too-hot", "gpu-row-remap-failed", "gpu-reset-needed", "gpu-fabric-not-ready")


@pytest.mark.parametrize(("elements", "is_warning"), FAILED_ELEMENTS)
def test_a_value_that_the_driver_cannot_read_is_never_healthy(elements: str, is_warning: bool) -> None:
    output = in_report(elements)
    inventory, tool = (read_outputs(fact, one=output) for fact in (GpuInventory, NvidiaSmi))
    (finding,) = run_check("gpu-tool-fails", {"w1": [tool, inventory, cards()]}).findings
    assert (finding.values["gpu"], finding.is_warning) == (0, is_warning)
    (element,) = finding.values["elements"]
    unknown = [name for name in JUDGES if run_check(name, {"w1": [inventory]}).unknown]
    expected = {
        "ecc_errors": ["gpu-ecc-errors", "gpu-row-remap-failed"],
        "temperature": ["gpu-too-hot"],
        "remapped_rows": ["gpu-row-remap-failed", "gpu-reset-needed"],
        "gpu_recovery_action": ["gpu-reset-needed"],
        "gpu_reset_status": ["gpu-reset-needed"],
        "fabric": ["gpu-fabric-not-ready"],
    }
    assert unknown == expected.get(element, [])


def test_a_gpu_without_a_readable_name_is_no_other_product() -> None:
    names = ("Unknown Error", H100)
    unread, sound = (Output(out=in_report("").out.replace(">NVIDIA<", f">{name}<")) for name in names)
    unnamed, named = (read_outputs(GpuInventory, one=output) for output in (unread, sound))
    outcome = run_check("gpu-product-mixed", {"w1": [unnamed], "w2": [named], "w3": [named]})
    assert (outcome.findings, list(outcome.unknown)) == ((), [""])
    (finding,) = run_check("gpu-tool-fails", {"w1": [read_outputs(NvidiaSmi, one=unread), unnamed, cards()]}).findings
    assert list(finding.values["elements"]) == ["product_name"] and finding.is_warning


@pytest.mark.parametrize(
    ("elements", "unknown"),
    [
        ("<ecc_errors><volatile><dram_uncorrectable>12 in 3 banks</dram_uncorrectable></volatile></ecc_errors>", True),
        ("<remapped_rows><remapped_row_failure>Pending (3)</remapped_row_failure></remapped_rows>", True),
        ("<temperature><gpu_temp>hot</gpu_temp></temperature>", True),
        ("<ecc_errors><volatile><dram_uncorrectable>-3</dram_uncorrectable></volatile></ecc_errors>", True),
        ("<temperature><gpu_temp>-3 C</gpu_temp><gpu_temp_tlimit>-5 C</gpu_temp_tlimit></temperature>", False),
        ("<fabric><state>Isolated</state></fabric>", True),
        ("<gpu_reset_status><reset_required>Perhaps</reset_required></gpu_reset_status>", True),
        ("<ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>", False),
        ("<fabric><state>Completed</state><health><summary>Healthy</summary></health></fabric>", False),
    ],
)
def test_a_value_of_another_form_is_unknown_not_healthy(elements: str, unknown: bool) -> None:
    """It accuses nobody, for a newer driver may have new words."""
    inventory, tool = (read_outputs(fact, one=in_report(elements)) for fact in (GpuInventory, NvidiaSmi))
    assert run_check("gpu-tool-fails", {"w1": [tool, inventory, cards()]}).findings == ()
    assert any(run_check(name, {"w1": [inventory]}).unknown for name in JUDGES) == unknown


@pytest.mark.parametrize(
    ("product", "is_told"), [("NVIDIA A100-SXM4-80GB", True), ("NVIDIA GeForce RTX 2080 Ti", False)]
)
def test_a_reading_that_no_check_needs_is_a_warning_of_a_server(product: str, is_told: bool) -> None:
    elements = "<temperature><memory_temp>ERR!</memory_temp></temperature><fan_speed>ERR!</fan_speed>"
    output = Output(out=in_report(elements).out.replace(">NVIDIA<", f">{product}<"))
    inventory, tool = (read_outputs(fact, one=output) for fact in (GpuInventory, NvidiaSmi))
    findings = run_check("gpu-tool-fails", {"w1": [tool, inventory, cards()]}).findings
    assert [(finding.values["elements"], finding.is_warning) for finding in findings] == [
        (["memory_temp"], True)
    ] * is_told
    assert not run_check("gpu-too-hot", {"w1": [inventory]}).unknown


def test_values_that_a_product_does_not_have_are_no_failure() -> None:
    """A fan of a passive card, the limit of power of a portable one, and the default limit of a GeForce 2080 Ti.

    https://github.com/enkore/i3pystatus/pull/850; https://github.com/Quake4/MindMiner/issues/627.
    """
    elements = "<fan_speed>[Unknown Error]</fan_speed><power_readings><power_limit>N/A</power_limit>"
    elements += "<default_power_limit>[Unknown Error]</default_power_limit></power_readings>"
    output = in_report(elements)
    inventory, tool = (read_outputs(fact, one=output) for fact in (GpuInventory, NvidiaSmi))
    assert run_check("gpu-tool-fails", {"w1": [tool, inventory, cards()]}).findings == ()


def test_a_registration_that_failed_is_a_finding_not_an_unread_value() -> None:
    inventory = read_outputs(
        GpuInventory, one=in_report("<fabric><state>Completed</state><status>Unknown Error</status></fabric>")
    )
    (finding,) = run_check("gpu-fabric-not-ready", {"w1": [inventory]}).findings
    assert finding.values["observed"] == "Completed, Unknown Error"


def test_one_lost_gpu_beside_others_that_answer() -> None:
    report = in_report("<fan_speed>[GPU is lost]</fan_speed>")
    inventory = read_outputs(GpuInventory, one=report)
    assert inventory.unread == {"GPU 0 (0000:61:00.0)": "GPU is lost"}
    tool = read_outputs(NvidiaSmi, one=report)
    assert tool.lost == ("0000:61:00.0",)
    ((_, text),) = messages(run_check("gpu-lost", {"w1": [tool]}))
    assert "0000:61:00.0: GPU is lost; " in text and "exit status" not in text


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
    assert isinstance(read_outputs(GpuInventory, one=Output(out=text)), Unreadable)


@pytest.mark.parametrize(("text", "active", "inactive"), NVLINKS)
def test_real_nvlinks(text: str, active: dict[int, int], inactive: dict[int, tuple[int, ...]]) -> None:
    links = read_outputs(NvLinks, one=Output(out=text))
    assert (links.active, links.inactive) == (active, inactive)


def test_gpus_without_nvlinks_have_none() -> None:
    assert isinstance(read_outputs(NvLinks, one=Output(out="")), Absent)
    assert isinstance(read_outputs(NvLinks, one=Output(out="GPU 0: NVIDIA L4 (UUID: GPU-1)\n")), Absent)


@pytest.mark.parametrize(("text", "links"), TOPOLOGIES)
def test_real_topologies(text: str, links: tuple[tuple[str, ...], ...]) -> None:
    assert read_outputs(GpuTopology, one=Output(out=text)).links == links
    coloured = text.replace("GPU0", "\x1b[4mGPU0", 1).replace("Affinity\n", "Affinity\x1b[0m\n", 1)
    assert read_outputs(GpuTopology, one=Output(out=coloured)).links == links


def test_fabric_managers() -> None:
    """The version's line: https://github.com/leptonai/gpud, older parseFabricManagerVersion."""
    text = "switches 6\ninit systemd\nprocess yes\nversion Fabric Manager version is : 535.161.08\n"
    running = read_outputs(FabricManager, one=Output(out=text + "LoadState=loaded\nActiveState=active\n"))
    assert (running.version, running.is_running, running.switches) == ("535.161.08", True, 6)
    stopped = read_outputs(
        FabricManager, one=Output(out="switches 6\ninit systemd\nLoadState=not-found\nActiveState=inactive\n")
    )
    assert (stopped.is_installed, stopped.is_running) == (False, False)
    assert isinstance(read_outputs(FabricManager, one=Output(out="switches 6\ninit bash\n")), Absent)
    assert isinstance(read_outputs(FabricManager, one=Output(out="switches x\n")), Unreadable)


OF_A_VM: dict[str, str] = json.loads(Path(__file__).with_name("recorded").joinpath("nvidia_h100_vm.json").read_text())
"""By command or file, of a healthy H100 in a virtual machine, driver 580.159.04; its numbers are zeros."""


def test_a_healthy_h100_in_a_virtual_machine_has_no_finding() -> None:
    inventory = read_outputs(GpuInventory, one=Output(out=OF_A_VM["nvidia-smi -q -x"]))
    (gpu,) = inventory.gpus
    assert (gpu.name, gpu.driver, gpu.memory, gpu.power_limit) == ("NVIDIA H100 80GB HBM3", "580.159.04", 81559, 700.0)
    assert (gpu.pcie_generation_max, gpu.pcie_width, gpu.fabric_state, gpu.mig) == (5, 16, "", "Disabled")
    topology = read_outputs(GpuTopology, one=Output(out=OF_A_VM["nvidia-smi topo -m"]))
    assert topology.links == (("GPU0", "X"),)
    why = read_outputs(NvLinks, one=Output(out=OF_A_VM["nvidia-smi nvlink -s"]))
    assert isinstance(why, Absent)
    assert str(why) == "nvidia-smi lists no NVLinks"
    tool = read_outputs(NvidiaSmi, one=Output(out=OF_A_VM["nvidia-smi -q -x"]))
    lines = tuple(LogLine(5.0, line.partition("] ")[2]) for line in OF_A_VM["dmesg"].splitlines())
    log = KernelLog(uptime=100.0, lines=lines)
    one = cards(pci=1, switches=0, driver=OF_A_VM["/proc/driver/nvidia/version"])
    for path in sorted(bundled_folder("checks").glob("gpu_*.py")):
        outcome = run_check(path.stem, {"w1": [inventory, topology, tool, log, one]})
        assert not outcome.findings, path.stem
        assert outcome.status.value in ("passed", "skipped"), (path.stem, outcome)


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
        why = read_outputs(fact, one=Output(out=text, code=code))
        causes = {"lost": "gpu-lost", "mismatch": "gpu-driver-mismatch", "driver": "gpu-driver-not-loaded"}
        assert isinstance(why, Absent), text
        if kind in causes:
            assert isinstance(why, Unreadable)
            assert why.root_cause == causes[kind]
    hang = read_outputs(fact, one=Output(ended="timeout", seconds=30))
    assert isinstance(hang, Unreadable)
    assert hang.root_cause == "gpu-tool-fails"


@pytest.mark.parametrize(
    ("text", "fails"), [("", True), ("busy\n", True), ("Topology is not supported here.\n", False)]
)
def test_a_topology_without_a_row_is_not_known_unless_the_tool_says_that_there_is_none(text: str, fails: bool) -> None:
    assert isinstance(read_outputs(GpuTopology, one=Output(out=text)), Unreadable) == fails


@pytest.mark.parametrize("text", WITHOUT_NVLINK)
def test_gpus_without_nvlink(text: str) -> None:
    why = read_outputs(NvLinks, one=Output(out=text))
    assert isinstance(why, Absent)
    assert not isinstance(why, Unreadable)


def test_of_gpus_behind_switches_the_one_without_links_is_found() -> None:
    """Those in slots without a bridge have no links on any host, and no finding."""
    slots, switched = (
        next(text for text, *_ in NVLINKS if name in text) for name in ("A100 80GB PCIe", "B200 (UUID: GPU-7")
    )
    hosts = {f"w{n}": [read_outputs(NvLinks, one=Output(out=slots)), cards(switches=0)] for n in range(3)}
    assert run_check("nvlink-down", hosts).findings == ()
    (finding,) = run_check("nvlink-down", {"w1": [read_outputs(NvLinks, one=Output(out=switched)), cards()]}).findings
    assert finding.values["gpu"] == 2


def test_a_link_that_lacks_counters_of_the_others() -> None:
    lines = [f"     Link {link}: {name}: 0" for link in (0, 1) for name in ("Replay Errors", "CRC Errors")]
    value = read_outputs(NvLinkErrors, one=Output(out="\n".join(["GPU 0: Tesla V100-SXM2-32GB", *lines[:3]])))
    assert "GPU 0" in value.unread
    assert read_outputs(NvLinkErrors, one=Output(out="\n".join(["GPU 0: Tesla V100-SXM2-32GB", *lines]))).unread == {}


@pytest.mark.parametrize("name", ["uuid", "vbios_version", "replay_counter"])
def test_what_no_check_needs_and_nvml_cannot_read_is_told(name: str) -> None:
    element = f"<{name}>Unknown Error</{name}>"
    report = in_report(f"<pci>{element}</pci>" if name == "replay_counter" else element).out
    report = report.replace("<product_name>NVIDIA<", "<product_name>NVIDIA H200<").replace("<uuid>GPU-1</uuid>", "")
    (gpu,) = read_outputs(GpuInventory, one=Output(out=report)).gpus
    assert gpu.failed == {name: "Unknown Error"}
