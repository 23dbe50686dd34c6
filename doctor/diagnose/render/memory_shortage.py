"""What a line says of device memory that ran out: how much was missing, and who held it.

Formats of torch c10/cuda/CUDACachingAllocator.cpp (2.1 and before, and after it) and of torch_npu
NPUCachingAllocator.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.diagnose.events import Event
from doctor.engine.language import phrase
from doctor.engine.quantities import bytes_text, parse_bytes

_SIZE = r"(?P<size>\d{1,6}(?:\.\d{1,3})? (?:bytes|[KMG]iB))"
_SIZE_AFTER = r"(?P<after>\d[\d.]{0,8} (?:bytes|[KMG]iB))"
_FIELDS = {
    "asked": re.compile(r"Tried to allocate " + _SIZE),
    "total": re.compile(_SIZE + r" total capacity|total capac?ity of " + _SIZE_AFTER),
    "free": re.compile(r"of which " + _SIZE + r" is free|" + _SIZE_AFTER + " free"),
    "held": re.compile(_SIZE + r" (?:is allocated by PyTorch|already allocated)"),
    "reserved": re.compile(_SIZE + r" (?:is )?reserved (?:by PyTorch but unallocated|in total by PyTorch)"),
}


_DEVICE = re.compile(r"(?<!\w)(?P<device>[GN]PU \d{1,3})(?:; \d| has a total capac)")


def memory_shortage(events: Iterable[Event]) -> str:
    """The largest request of these lines in words, its device, and who held the memory; empty where no line
    shows it. The device has the number that its process gives it, which of several visible ones is not the host's.
    """
    rows = {event.text: sizes for event in events if (sizes := _sizes(event.text)) and {"asked", "free"} <= {*sizes}}
    if not rows:
        return ""
    line = max(rows, key=lambda text: rows[text]["asked"] - rows[text]["free"])
    device, shortage = _DEVICE.search(line), _shortage(rows[line])
    if not device:
        return shortage
    return phrase("{device} as its process counts: {shortage}", device=device["device"], shortage=shortage)


def _shortage(sizes: dict[str, int]) -> str:
    missing, free = sizes["asked"] - sizes["free"], bytes_text(sizes["free"])
    asked = bytes_text(sizes["asked"])
    if missing <= 0:
        return phrase(
            "it asked for {asked} while {free} was free: the free memory is in pieces", asked=asked, free=free
        )
    values = {"free": free, "missing": bytes_text(missing)}
    text = phrase("it asked for {asked} while {free} was free: {missing} too much", asked=asked, **values)
    return text + _holders(sizes)


def _holders(sizes: dict[str, int]) -> str:
    if not {"total", "held"} <= sizes.keys():
        return ""
    total, held = sizes["total"], sizes["held"]
    unused = sizes.get("reserved", 0)
    unused = max(0, unused - held) if unused >= held else unused
    other = max(0, total - sizes["free"] - held - unused)
    shares = {
        "tensors of the program": held,
        "memory that PyTorch keeps unused": unused,
        "other use, or other processes": other,
    }
    most = max(shares, key=lambda name: shares[name])
    return phrase(
        "; of {total}, tensors hold {held}, PyTorch keeps {unused} unused, others hold {other}: most is {most}",
        total=bytes_text(total),
        held=bytes_text(held),
        unused=bytes_text(unused),
        other=bytes_text(other),
        most=phrase(most),
    )


def _sizes(text: str) -> dict[str, int]:
    """Bytes by field."""
    sizes = {}
    for name, pattern in _FIELDS.items():
        match = pattern.search(text)
        size = parse_bytes(match[match.lastgroup or "size"]) if match else None
        if size is not None:
            sizes[name] = size
    return sizes
