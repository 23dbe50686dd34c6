"""The optical modules in the NPUs' network ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.fact import Answer, Fact, Output
from doctor.facts.hccn.tool import each_npu, field, hccn, missing, said, there, told

_LIMITS = {"Tx Power": "TxPower", "Rx Power": "RxPower", "Vcc": "Vcc", "temperature": "Temp"}
"""What is measured, and the word for it in the names of its thresholds."""


class Reading(msgspec.Struct, frozen=True):
    """A measured value and the module's own thresholds."""

    value: float
    low: float
    high: float
    unit: str


class Module(msgspec.Struct, frozen=True):
    """One optical module."""

    reachable: bool = True
    """False: it is plugged in, and its control link does not answer."""
    readings: dict[str, Reading] = {}
    """By name: ``Rx Power0`` is the light that comes in on lane 0."""
    flags: dict[str, int] = {}
    """Loss of signal (Los) and of lock (LoL), a bit a lane."""
    vendor: str = ""


class Optics(Fact, frozen=True):
    """The optical module of every NPU's network port."""

    probe = hccn("-optical -g")

    by_npu: dict[int, Module]
    empty: tuple[int, ...] = ()
    """NPUs without a module."""

    @classmethod
    def read(cls, answer: Answer) -> Optics:
        seen, unread = each_npu(answer, _module_of)
        return cls(by_npu=there(seen), empty=missing(seen), unread=unread)


def _module_of(output: Output) -> Module | None:
    if "Control link unreachable" in said(output):
        return Module(reachable=False)
    return told(_module, "Optical module is not present")(output)


def _module(text: str) -> Module | None:
    present = {"present": True, "not present": False}
    if not present[field("present", text)]:
        return None
    rows = dict(re.findall(r"^[ \t]*(\S[^:\n]*?)[ \t]*:[ \t]*(.*?)[ \t\r]*$", text, re.M))
    readings = dict(_readings(rows))
    if not readings:
        raise ValueError("a module that measures nothing")
    return Module(readings=readings, flags=dict(_flags(rows)), vendor=rows.get("vendor name", ""))


def _readings(rows: Mapping[str, str]) -> Iterator[tuple[str, Reading]]:
    """Raises: ValueError for a value that is there and cannot be read."""
    for name, text in rows.items():
        limits = _LIMITS.get(name.rstrip("0123456789"))
        if limits is None or _silent(text):
            continue
        low, high = (rows.get(f"{limits} {end} Thres", "NA") for end in ("Low", "High"))
        if not _silent(low) and not _silent(high):
            value, unit = _quantity(text)
            yield name, Reading(value, _quantity(low)[0], _quantity(high)[0], unit)


def _flags(rows: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name, text in rows.items():
        if re.fullmatch(r"[TR]x Lo[SsL] Flag", name) and not _silent(text):
            yield name.removesuffix(" Flag"), int(text, 16)


def _quantity(text: str) -> tuple[float, str]:
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
    if not found:
        raise ValueError(f"not a quantity: {text}")
    return float(found[1]), found[2]


def _silent(text: str) -> bool:
    """The module does not measure this."""
    return text.lower() in ("not supported", "na", "n/a")
