"""NVIDIA GPUs: the PCI bus, and what nvidia-smi reports or how it fails."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from typing import Literal

import msgspec

from doctor.engine.fact import (
    Absent,
    DeviceList,
    Fact,
    Output,
    ProbeAnswer,
    ProbeArguments,
    Unreadable,
    ask,
    run,
    unusable_reason,
)
from doctor.engine.texts import beginning, filled, joined
from doctor.facts.gpu_report import LOST, Gpu, GpuProcess, GpuReport, parse_report, short_bus
from doctor.facts.reported_value import complaint, require_no_complaint
from doctor.remote.runtime.reading import find_tool, matching_paths, read_text

__all__ = ["Gpu", "GpuCards", "GpuInventory", "GpuProcess", "NvidiaSmi", "detect_gpus"]


VIRTUAL = ("qemu", "kvm", "vmware", "virtual machine", "virtualbox", "xen", "google compute engine", "openstack")


def is_virtual_machine(machine: str) -> bool:
    """Whether the firmware's vendor and product are those of a virtual machine.

    >>> is_virtual_machine("Amazon EC2 p5.48xlarge"), is_virtual_machine("Amazon EC2 g4dn.metal")
    (True, False)
    """
    name = machine.lower()
    return any(word in name for word in VIRTUAL) or ("amazon ec2" in name and "metal" not in name)


def _redirects(path: str) -> bool:
    """The access control services of a bridge send requests between its devices upwards (PCIe, capability 0x0d)."""
    with open(path, "rb") as file:
        config = file.read(4096)
    if len(config) < 260:
        raise PermissionError(path)
    place, steps = 256, 0
    while place and steps < 64:
        (header,) = struct.unpack_from("<I", config, place)
        if header & 0xFFFF == 0x0D:
            return bool(struct.unpack_from("<H", config, place + 6)[0] & 0x1C)
        place, steps = header >> 20, steps + 1
        if place > len(config) - 8:
            break
    return False


def detect_gpus(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: NVIDIA GPUs and switches on the PCI bus, the driver, and what direct transfers need."""
    pci = switches = 0
    for path in matching_paths("/sys/bus/pci/devices/*/vendor"):
        if read_text(path).strip() == "0x10de":
            kind = read_text(path[:-6] + "class").strip()
            bound = os.path.basename(os.path.realpath(path[:-6] + "driver"))
            pci += kind.startswith("0x03") and bound not in ("vfio-pci", "pci-stub")
            switches += kind.startswith("0x0680")
    path = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
    driver = read_text("/proc/driver/nvidia/version").strip().split("\n")[0]
    answer: dict[str, object] = {"pci": pci, "driver": driver, "switches": switches}
    answer["tool"] = bool(find_tool("nvidia-smi", path))
    if not pci:
        return answer
    answer["peermem"] = any(os.path.isdir("/sys/module/" + name) for name in ("nvidia_peermem", "nv_peer_mem"))
    names = [read_text("/sys/class/dmi/id/" + name).strip() for name in ("sys_vendor", "product_name")]
    answer["machine"] = " ".join(names)
    redirecting: list[str] = []
    for path in matching_paths("/sys/bus/pci/devices/*/class"):
        if read_text(path).strip().startswith("0x0604"):
            try:
                if _redirects(path[:-5] + "config"):
                    redirecting.append(path.split("/")[-2])
            except PermissionError:
                return answer
            except (OSError, struct.error):
                pass
    answer["redirecting"] = redirecting
    return answer


class GpuCards(Fact, frozen=True):
    """NVIDIA GPUs on the PCI bus (vendor 10de, display class), whether the driver is loaded, the tool installed.

    GPUs that are kept for virtual machines (driver vfio-pci or pci-stub) are no GPUs of this host.

    Raw output, as JSON::

        {"pci": 8, "driver": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03", "tool": true,
         "switches": 4, "peermem": true, "machine": "Supermicro SYS-821GE-TNHR", "redirecting": ["0000:15:01.0"]}
    """

    probe = ask(detect_gpus, root=True)

    pci: int
    driver: str
    """First line of ``/proc/driver/nvidia/version``; empty when the module is not loaded."""
    tool: bool
    """nvidia-smi is installed."""
    switches: int = 0
    """NVSwitches on the PCI bus (bridges of vendor 10de)."""
    peermem: bool | None = None
    """nvidia_peermem (or nv_peer_mem before it) is loaded; None if unknown."""
    machine: str = ""
    """Vendor and product of the machine, as its firmware has them."""
    redirecting: tuple[str, ...] | None = None
    """PCI bridges whose access control services redirect; None if unknown, as for an ordinary user."""

    @property
    def is_open_driver(self) -> bool:
        """The open kernel modules, which export memory as dma-buf."""
        return "open kernel module" in self.driver.lower()

    @property
    def driver_version(self) -> str:
        """The version of the loaded module; empty where none is loaded."""
        match = re.search(r"\b([0-9]{3,4}(?:\.[0-9]+)+)\b", self.driver)
        return match[1] if match else ""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpuCards:
        cards = msgspec.convert(answer.json(), cls)
        if not (cards.pci or cards.driver or cards.tool):
            raise Absent("the host has no NVIDIA GPU")
        return cards


_REPORT = """report=$(nvidia-smi -q -x)
code=$?
printf '%s\\n' "$report" | grep -v 'supported_graphics_clock\\|supported_mem_clock\\|<value>'
[ $code = 0 ] && nvidia-smi 2>&1 | grep -i 'infoROM is corrupted'
exit $code"""
"""The lists of clocks, half of the report, are left out. The table tells of a damaged ROM, the report seldom
(https://github.com/microsoft/pai/issues/3756)."""
_HANDLE = re.compile(
    r"Unable to (?:determine|detect) the device handle for GPU ?(?:[0-9]+: )?([0-9A-Fa-f:.]+?):? *(?:: (.*))?$", re.M
)
_DAMAGED = re.compile(r"infoROM is corrupted(?: at gpu ([0-9A-Fa-f:.]{7,16}))?", re.I)
"""Manual of nvidia-smi, return value 14; the warning stands after the report, or on stderr."""


_HEADING = re.compile(r"^GPU ([0-9]{1,3}): ", re.M)


class GpuInventory(DeviceList, frozen=True):
    """Every GPU that nvidia-smi lists, and its state.

    Raw output, from nvidia-smi::

        <?xml version="1.0" ?>
        <!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
        <nvidia_smi_log>
            <driver_version>535.54.03</driver_version>
            <cuda_version>12.2</cuda_version>
            <gpu id="00000000:01:00.0">
                <product_name>NVIDIA A100-SXM4-80GB</product_name>
                <uuid>GPU-513536b6-7d19-9063-b049-1e69664bb298</uuid>
                <persistence_mode>Disabled</persistence_mode>
                <fb_memory_usage><total>81920 MiB</total></fb_memory_usage>
                <ecc_errors><volatile><dram_uncorrectable>0</dram_uncorrectable></volatile></ecc_errors>
            </gpu>
        </nvidia_smi_log>
    """

    probe = run(_REPORT, requires="nvidia-smi", timeout=30, limit=1 << 20)

    gpus: tuple[Gpu, ...]
    cuda: str = ""
    """The newest CUDA version that the driver supports; empty if unknown."""

    def unanswered(self, outputs: Mapping[str, Output]) -> tuple[str, ...]:
        """GPUs that a list with a heading for each (``GPU 3: NVIDIA H100``) lacks, and has others of their product."""
        listed = {int(number) for number in _HEADING.findall(outputs[""].out if "" in outputs else "")}
        products = {gpu.name for gpu in self.gpus if gpu.index in listed}
        lacking = [gpu.index for gpu in self.gpus if gpu.name in products and gpu.index not in listed]
        return tuple(filled("GPU {0}", index) for index in lacking)

    def require(self, *elements: str) -> None:
        """Raises: Unreadable where an element of a GPU's report was not read, or has a form that is not known."""
        unread = [
            filled("GPU {0} ({1}): {2}: {3}", gpu.index, gpu.bus, element, text)
            for gpu in self.gpus
            for element in elements
            if (text := gpu.failed.get(element) or gpu.strange.get(element))
        ]
        if unread:
            has_failed = any(element in gpu.failed for gpu in self.gpus for element in elements)
            raise Unreadable(joined("; ", unread[:4]), "gpu-tool-fails" if has_failed else "")

    @classmethod
    def read(cls, answer: ProbeAnswer) -> GpuInventory:
        failure = _failure(answer)
        if failure.kind == "no-devices":
            return cls(gpus=())
        text = answer[""].out if "" in answer else ""
        if "<nvidia_smi_log" not in text:
            raise Unreadable(filled("nvidia-smi: {0}", failure.text), _ROOT_CAUSES.get(failure.kind, ""))
        report = parse_report(text)
        if not report.gpus and not report.unread:
            raise Unreadable("nvidia-smi: it listed no GPU")
        unlisted = (bus for bus in failure.lost if not any(bus in name for name in report.unread))
        unread = {**report.unread, **{filled("GPU at {0}", bus): "nvidia-smi has no handle for it" for bus in unlisted}}
        return cls(gpus=report.gpus, cuda=report.cuda, unread=unread)


FailureKind = Literal["", "no-devices", "lost", "mismatch", "driver", "hang", "denied", "other"]
_ROOT_CAUSES = {
    "lost": "gpu-lost",
    "mismatch": "gpu-driver-mismatch",
    "hang": "gpu-tool-fails",
    "denied": "gpu-tool-fails",
    "driver": "gpu-driver-not-loaded",
}


class NvidiaSmi(Fact, frozen=True):
    """How nvidia-smi ended: with a report, or with one of its known failures.

    Raw output, from nvidia-smi::

        Failed to initialize NVML: Driver/library version mismatch
        NVML library version: 550.144
    """

    probe = GpuInventory.probe
    shares = GpuInventory

    kind: FailureKind
    """Empty: it answered."""
    text: str = ""
    """Its first two lines, or how long it did not answer."""
    lost: tuple[str, ...] = ()
    """PCI addresses of the GPUs that the driver has lost."""
    damaged: tuple[str, ...] = ()
    """PCI addresses of the GPUs whose information ROM (infoROM) is corrupted; an empty one where none is named."""
    beside: str = ""
    """What it printed beside a complete report, or its exit status, where either tells of a failure."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NvidiaSmi:
        if "" in answer and answer[""].ended == "absent":
            raise Absent(answer[""].err or "nvidia-smi is not installed")
        if "" not in answer or answer[""].ended == "error":
            raise Unreadable(filled("nvidia-smi: {0}", unusable_reason(answer[""]) if "" in answer else "was not run"))
        return _failure(answer)

    def require_report(self) -> None:
        """Raises: Unreadable where it gave none, and nothing is known of what a report or another failure tells."""
        if self.kind in ("hang", "driver", "denied", "other"):
            raise Unreadable(self.text, _ROOT_CAUSES.get(self.kind, "gpu-tool-fails"))


def _failure(answer: ProbeAnswer) -> NvidiaSmi:
    """What kind of failure an output is. Raises: Absent, Unreadable."""
    if "" not in answer or answer[""].ended in ("absent", "error"):
        answer.text()
    output = answer[""]
    if output.ended == "timeout":
        return NvidiaSmi(kind="hang", text=filled("no answer in {0} s", f"{output.seconds:.0f}"))
    if output.cut:
        raise Unreadable("nvidia-smi: output exceeds the limit")
    printed = f"{_around_report(output.out)}\n{output.err}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    first_lines = beginning(" / ".join(lines[:2]), 300)
    lost = tuple(short_bus(match[1]) for match in _HANDLE.finditer(printed))
    if "<nvidia_smi_log" in output.out:
        report = _safe_report(output.out) if LOST.search(output.out) else None
        lost += tuple(name.partition("(")[2].rstrip(")") for name in report.unread) if report else ()
        damaged = tuple(short_bus(match[1] or "") for match in _DAMAGED.finditer(printed))
        if output.code == 14 and not damaged:
            damaged = ("",)
        unfinished = "" if lost or damaged else _unfinished(output.out)
        return NvidiaSmi(
            kind="lost" if lost else "other" if unfinished else "",
            text=first_lines if lost else unfinished,
            lost=lost,
            damaged=damaged,
            beside="" if lost or damaged else _beside(lines, output.code) or complaint(output.out),
        )
    text = first_lines or filled("exit status {0}", output.code)
    return NvidiaSmi(kind=_failure_kind(output, printed, bool(lost)), text=text, lost=lost)


def _around_report(text: str) -> str:
    """What was printed before and after the report; all of it where there is none, or where it has no end."""
    begin, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if begin < 0:
        return text
    before = text[:begin].partition("<?xml")[0]
    return before + "\n" + (text[end:].partition(">")[2] if end > begin else "")


def _beside(lines: list[str], code: int) -> str:
    """What is wrong although the report is complete; warnings of the host's loader and shell are not the tool's."""
    if complaints := [line for line in lines if complaint(line)]:
        return beginning(" / ".join(complaints[:2]), 300)
    if not code:
        return ""
    return filled("exit status {0}: {1}", code, beginning(lines[0], 200)) if lines else filled("exit status {0}", code)


def _unfinished(text: str) -> str:
    """What is wrong where the report has no end."""
    if "</nvidia_smi_log>" not in text:
        return "its report has no end: </nvidia_smi_log>"
    return filled("its answer stands there twice") if text.count("<nvidia_smi_log>") > 1 else ""


def _safe_report(text: str) -> GpuReport | None:
    try:
        return parse_report(text)
    except Unreadable:
        return None


def _failure_kind(output: Output, printed: str, has_lost: bool) -> FailureKind:
    """The failure by its text, then by the exit status (manual of nvidia-smi, return value)."""
    lowered = printed.lower()
    if has_lost or LOST.search(printed) or output.code == 15:
        return "lost"
    if "driver/library version mismatch" in lowered:
        return "mismatch"
    if "couldn't communicate with the nvidia driver" in lowered or output.code == 9:
        return "driver"
    if "no devices were found" in lowered:
        return "no-devices"
    if "insufficient permissions" in lowered or "failed to initialize nvml" in lowered or output.code == 4:
        return "denied"
    return "other"


def tool_text(answer: ProbeAnswer) -> str:
    """What nvidia-smi printed. Raises: Absent, Unreadable with the check that reports its failure as a whole."""
    output = answer.get("")
    if output is None or output.ended in ("absent", "error") or output.cut:
        return answer.text()
    if output.ended == "timeout":
        raise Unreadable(filled("nvidia-smi: no answer in {0} s", f"{output.seconds:.0f}"), "gpu-tool-fails")
    printed = f"{output.out}\n{output.err}"
    kind = _failure_kind(output, printed, bool(_HANDLE.search(printed)))
    if kind == "no-devices":
        raise Absent("nvidia-smi lists no GPU")
    if kind in _ROOT_CAUSES:
        raise Unreadable(f"nvidia-smi: {beginning(printed.strip().partition(chr(10))[0], 200)}", _ROOT_CAUSES[kind])
    text = answer.text(codes=(0, 3, 255))
    require_no_complaint("nvidia-smi", printed, r"all links are inactive|infoROM is corrupted|[Nn]ot supported")
    return text
