"""NVIDIA's Xid and SXid messages in the kernel log: what they mean, and what NVIDIA recommends.

Source: the Xid catalog of the driver r580, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
(column "Resolution Bucket, Immediate Action"), and the fabric manager's guide, appendix D, for SXids. Codes that NVIDIA
attributes to the program that ran (13, 31, 32, 43, 45, 69 and others: restart the application, or ignore) are no
fault of the host, and are left out. The catalog has no action for 167 to 175, which are newer: their meaning is that of
the driver's nverror.h (595.45.04), and their action that of the errors that they accompany or resemble.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.quantities import DAY
from doctor.engine.texts import beginning, filled
from doctor.engine.toml_compat import read_table
from doctor.facts.gpu_report import Gpu, short_bus
from doctor.facts.kernel_faults import fault_pattern, named_device
from doctor.facts.kernel_log import KernelLog

RESET = "drain the host and reset the GPU"
RESTART = "restart the host"
SUPPORT = "have the GPU examined by the vendor"
DEMANDING = frozenset({"RESET_GPU", "RESTART_BM", "RESTART_VM", "WORKFLOW_XID_48"})
"""NVIDIA's immediate actions without which no job may start on the GPU."""
RECOVERY = 154
"""The driver's own recommendation after other errors: ``GPU recovery action changed from 0x0 (None) to 0x1 (...)``."""
RECOVERY_ACTIONS = {
    "reset": RESET,
    "flr": RESET,
    "reboot": RESTART,
    "p2p": "end the programs that use NVLink, and reset the GPU",
    "imex": "restart the programs of all hosts of the NVLink domain, then nvidia-imex on them",
}
"""By a word of the new state, which drivers call GPU Reset Required, PF FLR, Drain and Reset, Drain P2P, OS Reboot,
Node Reboot Required (gpu.c of the open driver, NV2080_CTRL_GPU_RECOVERY_ACTION)."""
FALLEN = 79
"""The GPU is gone until the host is restarted."""
LOADING = 30
"""Seconds: what the driver finds while it is being loaded stands before the line that says that it is."""
LINK_CODES = range(144, 151)
"""Of NVLinks of the fifth generation: the message says whether it is fatal."""
CATALOG: dict[int, tuple[str, str]] = {
    46: ("the GPU stopped processing", RESET),
    54: ("auxiliary power is not connected", "check the power cables of the GPU"),
    62: ("the GPU's internal controller halted", RESET),
    64: ("a damaged memory row could not be replaced", RESET),
    FALLEN: ("the GPU has fallen off the bus", RESTART),
    92: ("many corrected memory errors", SUPPORT),
    94: ("a memory error that ended one program", "restart the job, and reset the GPU when it is idle"),
    95: ("a memory error that affects all programs", RESET),
    109: ("a context switch timed out", RESET),
    110: ("a security fault", RESET),
    119: ("the GPU's system processor (GSP) did not answer", RESET),
    120: ("an error of the GPU's system processor (GSP)", RESET),
    136: ("an NVLink could not be trained", RESET),
    140: ("memory errors that could not be corrected", RESET),
    143: ("the GPU could not be initialised", RESET),
    151: ("a key rotation failed", RESTART),
    156: ("a part of the GPU was retired", RESET),
    157: ("a damaged part of the GPU could not be retired", SUPPORT),
    158: ("a fatal timeout of the GPU", RESET),
    161: ("a damaged memory channel could not be retired", SUPPORT),
    167: ("a fatal timeout of PCIe", RESET),
    168: ("the GPU has less memory than it should", SUPPORT),
    169: ("a security controller of the GPU halted", RESET),
    172: ("an error of the GPU's caches that could not be corrected", RESET),
    173: ("the link between GPU and CPU (C2C) failed", RESTART),
    175: ("an error of the GPU's memory subsystem", SUPPORT),
    **dict.fromkeys((48, 171), ("a memory error that could not be corrected", RESET)),
    **dict.fromkeys((74, 155, *LINK_CODES), ("an NVLink error", RESET)),
}
_NEW_STATE = re.compile(r"recovery action changed from \S+ \([^)]{0,40}\)\s+to (0x[0-9a-fA-F]{1,4}) \(([^)]{0,40})\)")
_XID, _SXID = fault_pattern("xid"), fault_pattern("sxid")
_OF_WORDS = (
    ("gpu-fallen", *CATALOG[FALLEN]),
    ("gpu-lost", *CATALOG[FALLEN]),
    ("gpu-init", *CATALOG[143]),
    (
        "gpu-ignored",
        "the driver does not support the GPU",
        "install the newest driver that supports it: before Turing (P100, V100) release 580, not its open module",
    ),
    (
        "gpu-region",
        "the GPU's memory has no address on the bus",
        "switch on Above 4G Decoding in the host's firmware, or start Linux with pci=realloc",
    ),
    (
        "gpu-bound",
        "another driver holds the GPU",
        "keep that driver from loading (blacklist it, build the initramfs anew), and restart the host",
    ),
    ("gpu-memory-lost", "the driver's part for memory (UVM) refuses every program of CUDA", RESTART),
    ("gpu-reset-required", "the driver refuses a GPU until it is reset", RESET),
    ("nvlink-detection", "an NVLink was not detected", RESTART),
)
"""Messages without a code: the row, what it means, and what to do."""

ECC_CODES = frozenset({48, 94, 95, 140, 171, 172})
"""Of uncorrected errors, which a counter of the GPU keeps until its reset."""


_Key = tuple[str, str, str, int]
"""Device, instance, kind and code."""


class _Catalog(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    xid: dict[str, list[int]]
    sxid: dict[str, list[int]]


@cache
def catalog() -> _Catalog:
    """NVIDIA's immediate action of each Xid, and how severe each SXid is, of xid_catalog.toml beside this module."""
    return read_table(Path(__file__).with_name("xid_catalog.toml"), _Catalog)


@cache
def listed_xids() -> frozenset[int]:
    """The codes that NVIDIA lists with a meaning, or that the driver's nverror.h has."""
    listed = {code for action, codes in catalog().xid.items() if action != "UNUSED" for code in codes}
    return frozenset(listed | CATALOG.keys())


class XidEvent(msgspec.Struct, frozen=True):
    """All messages of one code about one GPU or NVSwitch."""

    device: str
    """PCI address; empty where no message names it."""
    instance: str
    """Of a divided GPU (MIG), such as ``GPU-I:05``."""
    kind: str
    """Xid or SXid; driver for a message without a code."""
    code: int
    """0 without a code."""
    count: int
    age: float
    """Seconds since the newest of them."""
    meaning: str
    action: str
    text: str
    """The end of the newest message."""
    is_recovered: bool = False
    """The driver has reported since that it recommends nothing any more."""

    @property
    def is_fallen(self) -> bool:
        """The GPU has fallen off the bus, by its code or by the driver's words."""
        return self.meaning == CATALOG[FALLEN][0]

    @property
    def demands_reset(self) -> bool:
        """Until the GPU is reset, or the host restarted, no job may use it."""
        if self.kind != "Xid" or self.code == RECOVERY or self.code in LINK_CODES:
            return True
        actions = {code: action for action, codes in catalog().xid.items() for code in codes}
        return actions.get(self.code) in DEMANDING or (
            actions.get(self.code, "NONE") == "NONE" and self.action in (RESET, RESTART)
        )

    def is_followed(self, log: KernelLog, gpu: Gpu | None) -> bool:
        """The demanded action was carried out since, as the log, or the GPU's own report, tells."""
        newer_than = self.age - LOADING if self.kind == "driver" else self.age
        if self.is_recovered or any(line.age < newer_than for line, _ in log.of_row("gpu-driver-loaded", log.uptime)):
            return True
        if gpu is None:
            return False
        if gpu.is_recovered or self.is_fallen:  # one that had fallen off the bus, and is listed again
            return True
        return self.code in ECC_CODES and gpu.ecc_errors == 0


def unlisted_xids(log: KernelLog) -> list[str]:
    """Xids of the last day whose meaning NVIDIA's catalog does not have."""
    matches = [match for _, match in log.of_row("xid")]
    unlisted = {(match["device"], int(match["code"])) for match in matches if int(match["code"]) not in listed_xids()}
    return [filled("Xid {0} on {1}", code, short_bus(device)) for device, code in sorted(unlisted)]


def xid_events(log: KernelLog, within: float = 7 * DAY) -> list[XidEvent]:
    """Messages that report a fault of a GPU, NVSwitch or link, the newest first."""
    events: dict[_Key, XidEvent] = {}
    recovered: dict[str, float] = {}
    for line in (each for each in reversed(log.lines) if each.age <= within):
        event, xid = _classify(line.text), _XID.search(line.text)
        if xid and int(xid["code"]) == RECOVERY:
            # Only the newest state counts: a GPU that was reset recommends nothing more.
            bus = short_bus(xid["device"])
            if bus in recovered:
                continue
            recovered[bus] = line.age if event is None else -1
        if not event:
            continue
        key, meaning, action, end = event
        newest = events.get(key)
        count = newest.count + 1 if newest else 1
        age, text = (newest.age, newest.text) if newest else (line.age, beginning(end.strip(), 160))
        events[key] = XidEvent(*key, count, age, meaning, action, text)
    numbered = {event.device.partition(".")[0] for event in events.values() if event.code not in (0, RECOVERY)}
    named = any(event.is_fallen and event.device for event in events.values())
    return [
        msgspec.structs.replace(event, is_recovered=-1 < recovered.get(event.device, -1) < event.age)
        for event in events.values()
        if (event.code not in (0, RECOVERY) or event.device.partition(".")[0] not in numbered)
        and (event.device or not named)
    ]


def _classify(text: str) -> tuple[_Key, str, str, str] | None:
    """Device, instance, kind and code; meaning; action; the message's end. None for what is no fault of the host."""
    xid, switch = _XID.search(text), _SXID.search(text)
    if xid:
        code, key = int(xid["code"]), (short_bus(xid["device"]), xid["instance"].strip(), "Xid")
        if code == RECOVERY:
            return _recommend((*key, RECOVERY), xid["text"])
        if code not in CATALOG or (code in LINK_CODES and "Nonfatal" in xid["text"]):
            return None
        return ((*key, code), *CATALOG[code], xid["text"])
    if switch:
        code = int(switch["code"])
        always = code in catalog().sxid["always-fatal"]
        meaning = "a fatal error of the whole NVLink fabric" if always else "a fatal error of an NVSwitch"
        return (short_bus(switch["device"]), switch["instance"].strip(), "SXid", code), meaning, RESTART, switch["text"]
    return _classify_words(text)


def _classify_words(text: str) -> tuple[_Key, str, str, str] | None:
    for name, meaning, action in _OF_WORDS:
        if found := fault_pattern(name).search(text):
            key = (short_bus(named_device(found)), "", "driver", 0)
            return key, meaning, action, found[0].removeprefix("NVRM: ")
    return None


def _recommend(key: _Key, text: str) -> tuple[_Key, str, str, str] | None:
    """What a new recovery action asks for. None where none is needed any more."""
    state = _NEW_STATE.search(text)
    if state is None or int(state[1], 16) == 0:
        return None
    actions = [action for word, action in RECOVERY_ACTIONS.items() if word in state[2].lower()]
    return key, "the driver recommends a recovery", (actions or [RESET])[0], text
