"""The modules and cables of RDMA ports: light, temperature, bit error rate and FEC, as NVIDIA's mlxlink prints them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.reported_value import OpticalReading, lacked_reasons, quantities, tool_blocks, value_state

CALL_SECONDS = 10
_SCRIPT = f"""tool=mlxlink; command -v mlxlink >/dev/null || tool=mstlink
for path in /sys/class/infiniband/*; do
  case $(readlink "$path/device/driver") in */mlx5_core) ;; *) continue ;; esac
  [ -e "$path/device/physfn" ] && continue
  name=${{path##*/}}
  echo "-- $name --"
  timeout {CALL_SECONDS} $tool -d "$name" -m -c </dev/null 2>&1
  echo "-- exit $? --"
done"""
MOST = 64
_ROW = re.compile(r"([A-Z][\w/()\[\],. ]{1,45}?)[ \t]*: ?(.{0,400})")
_MEASURED = re.compile(r"(-?\d[\d.,e-]{0,200}) \[(-?\d{1,6}(?:\.\d{1,6})?)\.\.(-?\d{1,6}(?:\.\d{1,6})?)\]", re.ASCII)
QUANTITIES = {
    "Temperature [C]": "temperature",
    "Voltage [mV]": "voltage",
    "Bias Current [mA]": "bias current",
    "Rx Power Current [dBm]": "Rx power",
    "Tx Power Current [dBm]": "Tx power",
}
UNSAID = ("0", "128", "1023", "N/A")
"""Status opcodes without advice: no issue observed, troubleshooting in process, info not available (monitor_opcode in
register_access_table.adb of github.com/Mellanox/mstflint)."""


class RdmaModule(msgspec.Struct, frozen=True):
    """What one adapter's port says of its module and its link."""

    state: str
    """Such as Active, Polling or Disable."""
    speed: str = ""
    fec: str = ""
    technology: str = ""
    """Of the cable, such as ``Copper cable, passive, unequalized``."""
    readings: dict[str, OpticalReading] = {}
    """By quantity and lane; empty where the module measures nothing, as copper does."""
    effective_ber: float | None = None
    """Bit errors that FEC did not correct, per bit; None where it is not counted. ``15E-255`` is 15 * 10^-255: none."""
    product: str = ""
    """The number of the module's part, else of what kind it is."""
    advice: str = ""
    """What the tool recommends; empty where it sees no issue."""


class RdmaModules(Fact, frozen=True):
    """Module and link of every mlx5 adapter that is no virtual function.

    Raw output, of one adapter; sections and most rows left out::

        -- mlx5_0 --
        State                              : Active
        Speed                              : IB-NDR
        FEC                                : Standard_RS-FEC - (544,514)
        Status Opcode                      : 0
        Recommendation                     : No issue was observed
        Temperature [C]                    : 54 [-5..75]
        Rx Power Current [dBm]             : 1.886,1.989,2.281,1.976 [-10.41..6]
        Effective Physical BER             : 15E-255
        -- exit 0 --
    """

    probe = run(_SCRIPT, requires="mlxlink mstlink", root=True, timeout=90, limit=1 << 19)

    by_device: dict[str, RdmaModule]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> RdmaModules:
        blocks = tool_blocks(answer.text(), r"[\w-]{1,64}")
        if not blocks:
            raise Absent("no adapter of the driver mlx5_core")
        by_device, unread = dict[str, RdmaModule](), dict[str, str]()
        for block in blocks[:MOST]:
            name, rows = block.name, _rows(block.text)
            if "State" not in rows and not block.code:
                block = block._replace(code=None)
            if failure := block.failure("mlxlink", CALL_SECONDS):
                unread[name] = failure
                continue
            try:
                by_device[name] = _module(rows)
            except ValueError as why:
                unread[name] = str(why)
        active = {name: module for name, module in by_device.items() if module.state == "Active"}
        lacked = lacked_reasons({name: (module.product, _answered(module)) for name, module in active.items()})
        unread |= {name: "mlxlink: " + why for name, why in lacked.items()}
        if not by_device:
            raise Unreadable.of_each(unread)
        return cls(by_device=by_device, unread=unread)


def _answered(module: RdmaModule) -> set[str]:
    return {*quantities(module.readings), *(() if module.effective_ber is None else ("Effective Physical BER",))}


def _rows(text: str) -> dict[str, str]:
    plain = re.sub(r"\x1b\[[0-9;]{0,10}m", "", text)
    matches = (_ROW.fullmatch(line.strip()) for line in plain.splitlines())
    return {match[1].strip(): strip_control_chars(match[2].strip(), 200) for match in matches if match}


def _module(rows: Mapping[str, str]) -> RdmaModule:
    """Raises: ValueError where a value is there and cannot be read."""
    readings: dict[str, OpticalReading] = {}
    for row, quantity in QUANTITIES.items():
        text = rows.get(row, "N/A")
        if text == "N/A":
            continue
        match = _MEASURED.fullmatch(text)
        if not match:
            raise ValueError(filled("{0}: expected a value and its limits, found {1}", row, text))
        lanes = [float(lane) for lane in match[1].split(",")]
        low, high, unit = float(match[2]), float(match[3]), row.rpartition("[")[2].rstrip("]")
        for number, value in enumerate(lanes):
            name = f"{quantity} {number}" if len(lanes) > 1 else quantity
            readings[name] = OpticalReading(value, low, high, unit)
    rate, opcode = rows.get("Effective Physical BER", "N/A"), rows.get("Status Opcode", "")
    advice = _advice(opcode, rows.get("Recommendation", ""))
    if not advice and not rows.keys() & {*QUANTITIES, "Identifier", "Cable Technology"}:
        raise ValueError(filled("{0}: its output was cut off", "mlxlink"))
    is_mute = rate == "N/A" == (opcode or "N/A") and not readings
    if value_state(rows["State"]) != "read" or (rows["State"] == "Active" and is_mute):
        raise ValueError(filled("{0}: {1}", "State", rows["State"] if not is_mute else filled("no value")))
    return RdmaModule(
        rows["State"],
        rows.get("Speed", ""),
        rows.get("FEC", "").replace("N/A", ""),
        rows.get("Cable Technology", "").replace("N/A", ""),
        readings,
        None if rate == "N/A" else float(rate),
        rows.get("Vendor Part Number") or " ".join(rows.get(name, "") for name in ("Identifier", "Cable Technology")),
        advice,
    )


def _advice(opcode: str, recommended: str) -> str:
    """What to report of a status opcode, or of the recommendation beside 0. Raises: ValueError for a wrong one."""
    if opcode in UNSAID:
        if not recommended:
            raise ValueError(filled("{0}: {1}", "Recommendation", filled("no value")))
        is_sound = opcode != "0" or recommended == "N/A" or "no issue" in recommended.lower()
        return "" if is_sound else recommended
    if not re.fullmatch("[0-9]{1,5}", opcode):
        raise ValueError(filled("{0}: expected a number, found {1}", "Status Opcode", opcode or filled("no value")))
    return filled("status opcode {0}", opcode) if recommended in ("", "N/A") else recommended
