"""NVIDIA's Xid and SXid messages in the kernel log: what they mean, and what NVIDIA recommends.

Source: the Xid catalog of the driver r580, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
(column "Resolution Bucket, Immediate Action"), and the fabric manager's guide, appendix D, for SXids. Codes that NVIDIA
attributes to the program that ran (13, 31, 32, 43, 45, 69 and others: restart the application, or ignore) are no
fault of the host, and are left out. The catalog has no action for 167 to 175, which are newer: their meaning is that of
the driver's nverror.h (595.45.04), and their action that of the errors that they accompany or resemble.
"""

from __future__ import annotations

import re

import msgspec

from doctor.facts.gpu_report import short_bus
from doctor.facts.kernel_log import DAY, KernelLog

RESET = "drain the host and reset the GPU"
RESTART = "restart the host"
SUPPORT = "have the GPU examined by the vendor"
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
LINK_CODES = range(144, 151)
"""Of NVLinks of the fifth generation: the message says whether it is fatal."""
CATALOG: dict[int, tuple[str, str]] = {
    46: ("the GPU stopped processing", RESET),
    48: ("a memory error that could not be corrected", RESET),
    54: ("auxiliary power is not connected", "check the power cables of the GPU"),
    62: ("the GPU's internal controller halted", RESET),
    64: ("a damaged memory row could not be replaced", RESET),
    74: ("an NVLink error", RESET),
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
    155: ("an NVLink error", RESET),
    156: ("a part of the GPU was retired", RESET),
    157: ("a damaged part of the GPU could not be retired", SUPPORT),
    158: ("a fatal timeout of the GPU", RESET),
    161: ("a damaged memory channel could not be retired", SUPPORT),
    167: ("a fatal timeout of PCIe", RESET),
    168: ("the GPU has less memory than it should", SUPPORT),
    169: ("a security controller of the GPU halted", RESET),
    171: ("a memory error that could not be corrected", RESET),
    172: ("an error of the GPU's caches that could not be corrected", RESET),
    173: ("the link between GPU and CPU (C2C) failed", RESTART),
    175: ("an error of the GPU's memory subsystem", SUPPORT),
    **dict.fromkeys(LINK_CODES, ("an NVLink error", RESET)),
}
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})\): ([0-9]{1,4}),?(.*)")
_LOST = re.compile(r"NVRM: (?:The NVIDIA )?GPU (?:at )?([0-9A-Fa-f:.]{7,16}).{0,200}allen off the bus", re.S)
"""Of drivers that find the GPU gone before they can number the error."""
_OFF_BUS = re.compile(r"NVRM: (?:GPU ([0-9A-Fa-f:.]{7,16}))?.{0,120}GPU lost from the bus \[NV_ERR_GPU_IS_LOST\]")
"""An assertion of the driver, which seldom names the GPU."""
_NEW_STATE = re.compile(r"recovery action changed from \S+ \([^)]{0,40}\)\s+to (0x[0-9a-fA-F]{1,4}) \(([^)]{0,40})\)")
_INITIALISATION = re.compile(r"NVRM: GPU ([0-9A-Fa-f:.]{7,16}): RmInitAdapter failed!(.*)")
_SXID = re.compile(r"nvidia-nvswitch[0-9]*: SXid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})\): ([0-9]{1,6}), Fatal,(.*)")


class XidEvent(msgspec.Struct, frozen=True):
    """All messages of one code about one GPU or NVSwitch."""

    device: str
    """PCI address; empty where no message names it."""
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

    @property
    def is_fallen(self) -> bool:
        """The GPU has fallen off the bus, by its code or by the driver's words."""
        return self.meaning == CATALOG[FALLEN][0]


def xid_events(log: KernelLog, within: float = 7 * DAY) -> list[XidEvent]:
    """Messages that report a fault of a GPU, NVSwitch or link, the newest first."""
    events: dict[tuple[str, str, int], XidEvent] = {}
    recovered: set[str] = set()
    for line, match in log.matching(r"NVRM: |SXid \(", within):
        event = _classify(match.string)
        xid = _XID.search(match.string)
        if xid and int(xid[2]) == RECOVERY:
            # Only the newest state counts: a GPU that was reset recommends nothing more.
            if short_bus(xid[1]) in recovered:
                continue
            recovered.add(short_bus(xid[1]))
        if not event:
            continue
        key, meaning, action, end = event
        newest = events.get(key)
        count = newest.count + 1 if newest else 1
        age, text = (newest.age, newest.text) if newest else (line.age, end.strip()[:160])
        events[key] = XidEvent(*key, count, age, meaning, action, text)
    numbered = {key[0].partition(".")[0] for key in events if key[2] not in (0, RECOVERY)}
    named = any(event.is_fallen and event.device for event in events.values())
    return [
        event
        for key, event in events.items()
        if (key[2] not in (0, RECOVERY) or key[0].partition(".")[0] not in numbered) and (key[0] or not named)
    ]


def _classify(text: str) -> tuple[tuple[str, str, int], str, str, str] | None:
    """Device, kind and code; meaning; action; the message's end. None for what is no fault of the host."""
    xid, switch = _XID.search(text), _SXID.search(text)
    if xid:
        code = int(xid[2])
        if code == RECOVERY:
            return _recommend(short_bus(xid[1]), xid[3])
        if code not in CATALOG or (code in LINK_CODES and "Nonfatal" in xid[3]):
            return None
        return ((short_bus(xid[1]), "Xid", code), *CATALOG[code], xid[3])
    if switch:
        return (short_bus(switch[1]), "SXid", int(switch[2])), "a fatal error of an NVSwitch", RESTART, switch[3]
    lost, off_bus, failed = _LOST.search(text), _OFF_BUS.search(text), _INITIALISATION.search(text)
    if lost:
        return ((short_bus(lost[1]), "driver", 0), *CATALOG[FALLEN], "fallen off the bus")
    if off_bus:
        return ((short_bus(off_bus[1] or ""), "driver", 0), *CATALOG[FALLEN], "GPU lost from the bus")
    if failed:
        return (short_bus(failed[1]), "driver", 0), *CATALOG[143], f"RmInitAdapter failed!{failed[2]}"
    return None


def _recommend(device: str, text: str) -> tuple[tuple[str, str, int], str, str, str] | None:
    """What a new recovery action asks for. None where none is needed any more."""
    state = _NEW_STATE.search(text)
    if state is None or int(state[1], 16) == 0:
        return None
    actions = [action for word, action in RECOVERY_ACTIONS.items() if word in state[2].lower()]
    return (device, "Xid", RECOVERY), "the driver recommends a recovery", (actions or [RESET])[0], text
