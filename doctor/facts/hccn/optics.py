"""The optical modules in the NPUs' network ports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.fact import Fact, Output, ProbeAnswer
from doctor.engine.texts import filled
from doctor.facts.hccn.tool import (
    combined_output,
    hccn_probe,
    parse_each_npu,
    parse_with,
    set_values,
    single_field,
    unset_npus,
)
from doctor.facts.reported_value import OpticalReading, lacked_reasons, quantities

_THRESHOLD_NAMES = {"Tx Power": "TxPower", "Rx Power": "RxPower", "Vcc": "Vcc", "temperature": "Temp"}
"""What is measured, and the word for it in the names of its thresholds."""


LEAST_SNR = 18.0
"""dB, of each lane, to the host and to the fibre: HOST_SNR_DB and MEDIA_SNR_DB in
component/ascend-faultdiag/toolkit_src/ascend_fd_tk/core/config/threshold_config.py of github.com/Ascend/mind-cluster,
commit 22bb3d98. A lane that shows 0 dB has no signal to measure.
"""


class OpticalModule(msgspec.Struct, frozen=True):
    """One optical module."""

    reachable: bool = True
    """False: it is plugged in, and its control link does not answer."""
    readings: dict[str, OpticalReading] = {}
    """By name: ``Rx Power0`` is the light that comes in on lane 0."""
    flags: dict[str, int] = {}
    """Loss of signal (Los) and of lock (LoL), a bit a lane."""
    vendor: str = ""
    product: str = ""
    """The number of its part, or its vendor; empty where neither is reported."""
    unread: tuple[str, ...] = ()
    """Quantities whose reading failed (``temperature: get failed``)."""


class Optics(Fact, frozen=True):
    """The optical module of every NPU's network port.

    Raw output, for NPU 0::

        optical info:
        present              : present
        temperature          : 47 C
        Vcc                  : 3262.90 mV
        Tx Power0            : 1.4035 mW
        Rx Power0            : 1.0189 mW
        Vcc High Thres       : 3465.00 mV
        Vcc Low Thres        : 3135.00 mV
        Temp High Thres      : 70 C
        Temp Low Thres       : 0 C
        TxPower High Thres   : 3.5481 mW
        TxPower Low Thres    : 0.2818 mW
        RxPower High Thres   : 3.5481 mW
        RxPower Low Thres    : 0.1445 mW
    """

    probe = hccn_probe("-optical -g")

    by_npu: dict[int, OpticalModule]
    empty: tuple[int, ...] = ()
    """NPUs without a module."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Optics:
        modules, unread = parse_each_npu(answer, _module_or_unreachable)
        by_npu = set_values(modules)
        answered = {
            npu: (module.product, quantities(module.readings) | {*module.flags})
            for npu, module in by_npu.items()
            if module.product
        }
        unread |= {f"NPU {npu}": why for npu, why in lacked_reasons(answered).items()}
        for npu, module in by_npu.items():
            if module.unread:
                unread[f"NPU {npu}"] = filled("hccn_tool could not read {0} of the module", ", ".join(module.unread))
        return cls(by_npu=by_npu, empty=unset_npus(modules), unread=unread)


def _module_or_unreachable(output: Output) -> OpticalModule | None:
    if "Control link unreachable" in combined_output(output):
        return OpticalModule(reachable=False)
    return parse_with(_parse_module, "Optical module is not present")(output)


def _parse_module(text: str) -> OpticalModule | None:
    present = {"present": True, "not present": False}
    if not present[single_field("present", text)]:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    rows = {name.strip(): value.strip() for name, colon, value in lines if colon and name.strip()}
    quantities = [name for name in rows if name.rstrip("0123456789") in _THRESHOLD_NAMES]
    if any(len(re.findall(rf"(?m)^[ \t]*{name}[ \t]*:", text)) > 1 for name in quantities):
        raise ValueError("a value that stands there twice")
    if not quantities:
        raise ValueError("a module without any quantity")
    failed = tuple(name for name in quantities if "fail" in rows[name].lower())
    readings = dict(_parse_readings({name: text for name, text in rows.items() if name not in failed}))
    if not readings and not failed and not all(_not_measured(rows[name]) for name in quantities):
        raise ValueError("a module that states values without limits")
    flags = dict(_parse_flags(rows)) if readings else {}
    for name, value in rows.items():
        is_measured = re.match(r"(?:Host|Media) SNR Lane", name) and not _not_measured(value)
        if is_measured and (snr := _parse_quantity(value)[0]):
            readings[name] = OpticalReading(snr, LEAST_SNR, math.inf, "dB")
    product = next((rows[name] for name in ("Vendor PN", "vendor pn", "vendor name") if rows.get(name)), "")
    return OpticalModule(
        readings=readings, flags=flags, vendor=rows.get("vendor name", ""), product=product, unread=failed
    )


def _parse_readings(rows: Mapping[str, str]) -> Iterator[tuple[str, OpticalReading]]:
    """Raises: ValueError for a value that is there and cannot be read, or whose limits are cut off."""
    has_limits = any(name.endswith(" Thres") for name in rows)
    for name, text in rows.items():
        limits = _THRESHOLD_NAMES.get(name.rstrip("0123456789"))
        if limits is None or _not_measured(text):
            continue
        low, high = (rows.get(f"{limits} {end} Thres", "" if has_limits else "NA") for end in ("Low", "High"))
        if "" in (low, high):
            raise ValueError("a value without its limits")
        if not _not_measured(low) and not _not_measured(high):
            value, unit = _parse_quantity(text)
            yield name, OpticalReading(value, _parse_quantity(low)[0], _parse_quantity(high)[0], unit)


def _parse_flags(rows: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    for name, text in rows.items():
        if re.fullmatch(r"[TR]x Lo[SsL] Flag", name) and not (text and _not_measured(text)):
            yield name.removesuffix(" Flag"), int(text, 16)


def _parse_quantity(text: str) -> tuple[float, str]:
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?) ?([A-Za-z]+)", text)
    if not match:
        raise ValueError(filled("not a quantity: {0}", text))
    return float(match[1]), match[2]


def _not_measured(text: str) -> bool:
    """The module does not measure this, as copper cables (tool.c of github.com/hicann/driver, lines 1425 and 1539)."""
    return text.lower() in ("not supported", "na", "n/a", "")
