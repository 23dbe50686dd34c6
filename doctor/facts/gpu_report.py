"""The report of ``nvidia-smi -q -x``: one `Gpu` for each GPU. Elements are found by name; what is missing is None.

The elements are those of nvsmi_device_v1.dtd to v13.dtd, whose names differ by driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.texts import beginning, filled
from doctor.facts.reported_value import LACKED, lacked_values, value_state

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_GPUS = 256
MAX_PROCESSES = 256
"""Processes of one GPU."""
LOST = re.compile(r"GPU is lost|fallen off the bus", re.I)
_DATA_CENTER = re.compile(
    r"\b(K80|M[46]0|P4|P40|P100|V100S?|T4|A2|A10G?|A16|A30X?|A40|A100X?|A800|L2|L4|L20|L40S?|H20|H800|G?H[12]00"
    r"|G?B[123]00|RTX PRO [0-9]{4}D? Blackwell Server Edition)\b"
)
_COHERENT = re.compile(r"\bG(?:H|B)[1-9]")
"""Superchips with a Grace processor: their memory is a NUMA node of Linux, which keeps files there as well."""
_UNSOUND = ("Unhealthy", "Limited Capacity", "Degraded", "True", "Yes")
"""Values of the fabric's health (NVML_GPU_FABRIC_HEALTH of nvml.h); sound are Healthy, Full, False and None."""
_READ = {
    "product_name": ("product_name",),
    "ecc_errors": ("ecc_errors/volatile/*", "ecc_errors/volatile/double_bit/total", "ecc_errors/*"),
    "repair_pending": ("ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending"),
    "sram_threshold_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
    "remapped_rows": ("remapped_rows/*",),
    "retired_pages": (
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
        "retired_pages/*/retired_count",
    ),
    "gpu_reset_status": ("gpu_reset_status/*",),
    "gpu_recovery_action": ("gpu_recovery_action",),
    "fb_memory_usage": ("fb_memory_usage/total", "fb_memory_usage/used"),
    "pci": ("pci/pci_gpu_link_info/link_widths/*", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "temperature": ("temperature/gpu_temp", "temperature/gpu_temp_tlimit"),
    "power_readings": tuple(
        f"{readings}/{name}"
        for readings in ("gpu_power_readings", "power_readings")
        for name in ("power_limit", "current_power_limit", "enforced_power_limit")
    ),
    "clocks_event_reasons": ("clocks_event_reasons/*", "clocks_throttle_reasons/*"),
    "applications_clocks": ("applications_clocks/graphics_clock",),
    "fabric": ("fabric/state", "fabric/health/*"),
    "mig_mode": ("mig_mode/current_mig", "mig_mode/pending_mig"),
    "persistence_mode": ("persistence_mode",),
    "compute_mode": ("compute_mode",),
}
"""What is read of a GPU, by the name of the report's element, and where its values stand."""
_SETTINGS = frozenset(
    (
        *("power_readings", "clocks_event_reasons", "applications_clocks", "persistence_mode", "compute_mode"),
        *("mig_mode", "product_name"),
    )
)
"""Elements that some healthy products cannot report: portable ones have no limit of power that can be read."""
NEEDED = frozenset(_READ.keys() - _SETTINGS)
"""Elements without which a GPU cannot be called healthy."""
_BESIDE = (
    *("ecc_errors/aggregate/*", "temperature/memory_temp", "fb_memory_usage/*", "pci/replay_counter", "vbios_version"),
    "uuid",
    *("clocks/*", "utilization/gpu_util", "utilization/memory_util"),
    *("gpu_power_readings/power_draw", "gpu_power_readings/instant_power_draw", "power_readings/power_draw"),
)
"""What no check needs, and every product for servers can read; GeForce cards and fans may fail in it and be well."""
_FORM = re.compile(
    r"(?:-(?=[0-9.]+ ?C$))?[0-9]{1,18}(?:[.][0-9]{1,9})?(?: ?[A-Za-z%/]{1,8})?|yes|no|true|false|enabled"
    r"|disabled|(?:not )?active|default|prohibited|exclusive[_ ](?:thread|process)|completed|in progress|not started"
    r"|(?:un)?healthy|full|limited capacity|degraded|supported",
    re.I,
)
"""Values of `_READ` as all drivers have them; what has another form is not understood."""
_FREE = frozenset({"product_name", "gpu_recovery_action", "vbios_version", "uuid"})
"""Each text that is there counts."""
_THROTTLES = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that nvidia-smi lists on a GPU."""

    pid: int
    kind: str
    """C: compute; G: graphics; C+G: both; M+C: an MPS client."""
    name: str
    mebibytes: int | None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as nvidia-smi lists it. None: the GPU has no such value, or the driver does not report it."""

    index: int
    name: str
    uuid: str
    driver: str
    memory: int | None
    """MiB. None for a GPU that shares the host's memory, such as the GB10."""
    ecc_errors: int | None
    """Uncorrected since the driver was loaded; None for a GPU without ECC, or with it turned off."""
    bus: str = ""
    """PCI address, as 0000:3b:00.0."""
    memory_used: int | None = None
    """MiB. None where it is not reported, and where the memory is part of the host's, which Linux fills by itself."""
    persistence: bool | None = None
    mig: str = ""
    """Enabled, Disabled, or empty for a GPU without MIG."""
    mig_pending: str = ""
    """The MIG mode after the next reset."""
    compute_mode: str = ""
    recovery_action: str = ""
    """What the driver recommends, such as GPU Reset; empty for nothing."""
    is_recovered: bool = False
    """The driver says that it recommends nothing; older ones say neither."""
    reset_required: bool = False
    row_remap_failed: bool = False
    row_remap_pending: bool = False
    page_retirement_pending: bool = False
    repair_pending: bool = False
    """A memory channel or a cluster of processors (TPC) is repaired at the next reset; since driver 570."""
    is_unrepairable: bool = False
    """The memory has errors that no spare part can replace (since driver 590), or as many retired pages as it can."""
    caches_failing: bool = False
    """The caches (SRAM) had more uncorrected errors than NVIDIA's limit for a replacement; since driver 535."""
    pcie_width: int | None = None
    """Lanes now; on an idle GPU as well."""
    pcie_width_max: int | None = None
    pcie_generation_max: int | None = None
    """The highest that the GPU and its slot can have together."""
    throttles: tuple[str, ...] = ()
    """Reasons for lower clocks that are no choice of an operator: hw_slowdown, sw_thermal_slowdown, ..."""
    temperature: int | None = None
    """Degrees Celsius."""
    temperature_limit: int | None = None
    """The clocks are lowered from here on."""
    power_limit: float | None = None
    """Watts."""
    clock_limit: int | None = None
    """MHz: the application clock of the processors, which an operator may lower; None where it has none."""
    fabric_state: str = ""
    fabric_status: str = ""
    fabric_faults: tuple[str, ...] = ()
    """What the NVLink fabric reports of itself, such as ``summary: Unhealthy``; since driver 550."""
    processes: tuple[GpuProcess, ...] = ()
    vbios: str = ""
    replays: int | None = None
    """PCIe packets that were sent again since the driver was loaded."""
    ecc_mode: str = ""
    """Enabled or Disabled; empty where it has none."""
    license: str = ""
    """Of a virtual GPU: Licensed (...), Unlicensed (...); empty where none is needed."""
    failed: dict[str, str] = {}
    """Elements of the report that the driver has and could not read, such as ``ecc_errors``, and what it said."""
    strange: dict[str, str] = {}
    """Elements of a form that no known driver has, and their text."""

    @property
    def is_data_center(self) -> bool:
        """A product for servers, not for desktops and laptops."""
        return bool(_DATA_CENTER.search(self.name))


class GpuReport(msgspec.Struct, frozen=True):
    """What one call of nvidia-smi reports."""

    driver: str
    cuda: str
    """The newest CUDA version that the driver supports; empty where it is not reported."""
    gpus: tuple[Gpu, ...]
    unread: dict[str, str]
    """GPUs that are listed, and whose values cannot be read."""


def short_bus(text: str) -> str:
    """A PCI address with a domain of four digits, in lower case.

    >>> short_bus("00000000:3B:00.0")
    '0000:3b:00.0'
    """
    domain, colon, rest = text.strip().lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def parse_report(text: str) -> GpuReport:
    """The report in the output; text before and after it is ignored. Raises: Unreadable."""
    from xml.etree import ElementTree

    begin, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if begin < 0 or end < begin:
        raise Unreadable("nvidia-smi -q -x: the report is incomplete")
    body = text[begin : end + len("</nvidia_smi_log>")]
    if "<!" in body.replace("<!--", ""):
        raise Unreadable("nvidia-smi -q -x: a declaration inside of the report")
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError) as error:
        raise Unreadable(filled("nvidia-smi -q -x: not XML: {0}", error)) from None
    driver = _text(root, "driver_version")
    gpus: list[Gpu] = []
    unread: dict[str, str] = {}
    answered: dict[int, tuple[str, set[str]]] = {}
    for index, element in enumerate(root.findall("gpu")[:MAX_GPUS]):
        bus = short_bus(element.get("id", ""))
        if bus and any(gpu.bus == bus for gpu in gpus):
            unread[filled("GPU {0} ({1})", index, bus)] = "nvidia-smi lists it twice"
        elif any(LOST.search(value) for value in element.itertext()):
            unread[filled("GPU {0} ({1})", index, bus)] = "GPU is lost"
        else:
            gpus.append(_gpu(index, bus, driver, element))
            kind = f"{gpus[-1].name} {gpus[-1].mig == 'Enabled'} {gpus[-1].ecc_mode == 'Disabled'}"
            answered[index] = kind, _answered(element)
    for index, lacked in lacked_values(answered).items():
        place = next(place for place, gpu in enumerate(gpus) if gpu.index == index)
        strange = {name.partition(" ")[0]: LACKED for name in lacked} | gpus[place].strange
        gpus[place] = msgspec.structs.replace(gpus[place], strange=strange)
    stated = _text(root, "attached_gpus")
    if stated.isdecimal() and int(stated[:9]) > len(gpus) + len(unread):
        unread[filled("{0} more GPUs", int(stated[:9]) - len(gpus) - len(unread))] = (
            "nvidia-smi counts and does not list them"
        )
    return GpuReport(driver, _text(root, "cuda_version"), tuple(gpus), unread)


MAX_RETIRED_PAGES = 64
"""Of GPUs before Ampere (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/row-remapping.html)."""


def _retired_pages(pages: Element | None) -> int:
    causes = ("multiple_single_bit_retirement", "double_bit_retirement")
    return sum(_number(pages, f"{cause}/retired_count") or 0 for cause in causes)


def _gpu(index: int, bus: str, driver: str, element: Element) -> Gpu:
    reset = element.find("gpu_reset_status")
    link = element.find("pci/pci_gpu_link_info")
    rows = element.find("remapped_rows")
    pages = element.find("retired_pages")
    errors = element.find("ecc_errors")
    temperature, power = element.find("temperature"), _first(element, ("gpu_power_readings", "power_readings"))
    failed, strange = _unread_elements(element)
    return Gpu(
        index,
        _text(element, "product_name"),
        _text(element, "uuid"),
        driver,
        _number(element, "fb_memory_usage/total"),
        _uncorrected(element.find("ecc_errors/volatile")),
        bus=bus,
        memory_used=None
        if _COHERENT.search(_text(element, "product_name"))
        else _number(element, "fb_memory_usage/used"),
        persistence=_switch(element, "persistence_mode"),
        mig=_text(element, "mig_mode/current_mig"),
        mig_pending=_text(element, "mig_mode/pending_mig"),
        compute_mode=_text(element, "compute_mode"),
        recovery_action=_text(element, "gpu_recovery_action")
        or ("Drain and Reset" if _yes(reset, "drain_and_reset_recommended") else ""),
        is_recovered=(element.findtext("gpu_recovery_action") or "").strip() == "None",
        reset_required=_yes(reset, "reset_required") or "GPU requires reset" in failed.values(),
        row_remap_failed=_yes(rows, "remapped_row_failure"),
        row_remap_pending=_yes(rows, "remapped_row_pending"),
        page_retirement_pending=_yes(pages, "pending_retirement") or _yes(pages, "pending_blacklist"),
        repair_pending=_yes(errors, "channel_repair_pending") or _yes(errors, "tpc_repair_pending"),
        is_unrepairable=_yes(errors, "unrepairable_memory") or _retired_pages(pages) >= MAX_RETIRED_PAGES,
        caches_failing=_yes(errors, "aggregate/sram_threshold_exceeded"),
        pcie_width=_number(link, "link_widths/current_link_width"),
        pcie_width_max=_number(link, "link_widths/max_link_width"),
        pcie_generation_max=_number(link, "pcie_gen/max_link_gen"),
        throttles=_active_throttles(element),
        temperature=_number(temperature, "gpu_temp"),
        temperature_limit=_temperature_limit(temperature),
        power_limit=_watts(power, ("current_power_limit", "power_limit", "enforced_power_limit")),
        clock_limit=_number(element, "applications_clocks/graphics_clock"),
        fabric_state=_text(element, "fabric/state"),
        fabric_status=_fabric_status(element),
        fabric_faults=_fabric_faults(element.find("fabric/health")),
        processes=_processes(element),
        vbios=_text(element, "vbios_version"),
        replays=_number(element, "pci/replay_counter"),
        ecc_mode=_text(element, "ecc_mode/current_ecc"),
        license=_text(element, "vgpu_software_licensed_product/license_status")
        or _text(element, "grid_licensed_product/license_status"),
        failed=failed,
        strange=strange,
    )


def _places(element: Element) -> Iterator[tuple[str, Element]]:
    """Each value that is read, with the name of its element."""
    is_data_center = _DATA_CENTER.search(_text(element, "product_name"))
    for name, paths in [*_READ.items(), *((("", _BESIDE),) if is_data_center else ())]:
        for path in paths:
            yield from ((name, value) for value in element.iterfind(path))


def _answered(element: Element) -> set[str]:
    """The values that stand there: the element's name and the value's. None and Not Active are answers as well."""
    values = [*_places(element), *(("fabric", value) for value in element.iterfind("fabric/status"))]
    texts = [(name or str(value.tag), value, (value.text or "").strip()) for name, value in values]
    return {
        f"{name} {value.tag}"
        for name, value, text in texts
        if len(value) or text in ("None", "Not Active") or value_state(text) != "absent"
    }


def _unread_elements(element: Element) -> tuple[dict[str, str], dict[str, str]]:
    """Elements with a value that the driver could not read, and those whose value is not understood."""
    failed: dict[str, str] = {}
    strange: dict[str, str] = {}
    failed_tags = set()
    for name, value in _places(element):
        text, key, state = (value.text or "").strip().strip("[]"), name or str(value.tag), value_state(value.text)
        if (state == "failed" or not (text or len(value))) and (name or value.tag not in failed_tags):
            failed.setdefault(key, text or filled("no value"))
            failed_tags.update([value.tag] if name else [])
        if state == "read" and not (key in _FREE or value.tag.startswith("incorrect") or _FORM.fullmatch(text)):
            strange.setdefault(key, beginning(text, 80))
    return failed, strange


def _first(element: Element, names: Iterable[str]) -> Element | None:
    return next((child for name in names if (child := element.find(name)) is not None), None)


def _text(element: Element | None, path: str) -> str:
    """An element's text; empty where there is none, or where it says that there is no value."""
    text = "" if element is None else (element.findtext(path) or "").strip()
    return beginning(text, 120) if value_state(text) == "read" else ""


def _number(element: Element | None, path: str) -> int | None:
    """The number that an element begins with: ``81559 MiB``, ``16x``, ``-5 C``: only a temperature is negative."""
    match = re.match(r"((?:-(?=[0-9.]+ ?C$))?[0-9]{1,9})(\.[0-9]+)?\s*([A-Za-z%/]*)$", _text(element, path))
    return int(match[1]) if match else None


def _watts(element: Element | None, names: Iterable[str]) -> float | None:
    for name in names:
        match = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) W$", _text(element, name))
        if match:
            return float(match[1])
    return None


def _yes(element: Element | None, path: str) -> bool:
    return _text(element, path) == "Yes"


def _switch(element: Element, path: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(_text(element, path))


def _uncorrected(counts: Element | None) -> int | None:
    """Uncorrected errors, of memory and of caches; the names are of the generations before and since Ampere."""
    if counts is None:
        return None
    total = _number(counts, "double_bit/total")
    if total is not None:
        return total
    fields = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
    numbers = [number for name in fields if (number := _number(counts, name)) is not None]
    return sum(numbers) if numbers else None


def _fabric_status(element: Element) -> str:
    """How the registration ended: a message of NVML, whose failures are values here."""
    text = element.findtext("fabric/status")
    if text is not None and not text.strip():
        return filled("no value")
    return "" if value_state(text) == "absent" else beginning((text or "").strip(), 120)


def _fabric_faults(health: Element | None) -> tuple[str, ...]:
    """The conditions that are not as they should be, under the driver's names for them."""
    fields = [(str(child.tag), _text(child, ".")) for child in (health if health is not None else ())]
    faults = [
        filled("{0}: {1}", name.replace("_", " "), text)
        for name, text in fields
        if text in _UNSOUND or (name.startswith("incorrect") and text not in ("", "False", "No"))
    ]
    return tuple(faults[:8])


def _active_throttles(element: Element) -> tuple[str, ...]:
    reasons = _first(element, ("clocks_event_reasons", "clocks_throttle_reasons"))
    prefixes = ("clocks_event_reason_", "clocks_throttle_reason_")
    return tuple(name for name in _THROTTLES if any(_text(reasons, f"{start}{name}") == "Active" for start in prefixes))


def _temperature_limit(element: Element | None) -> int | None:
    """Where the GPU slows itself down. Since Hopper it is reported as a distance from the temperature now."""
    limit = _number(element, "gpu_temp_slow_threshold")
    if limit is not None:
        return limit
    now, margin = _number(element, "gpu_temp"), _number(element, "gpu_temp_tlimit")
    slow = _number(element, "gpu_temp_slow_tlimit_threshold")
    return None if now is None or margin is None or slow is None else now + margin - slow


def _processes(element: Element) -> tuple[GpuProcess, ...]:
    processes = []
    for info in element.findall("processes/process_info")[:MAX_PROCESSES]:
        pid = _number(info, "pid")
        if pid is not None:
            name = _text(info, "process_name")
            processes.append(GpuProcess(pid, _text(info, "type"), name, _number(info, "used_memory")))
    return tuple(processes)
