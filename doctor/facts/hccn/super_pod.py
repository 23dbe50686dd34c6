"""The super pod that an A3 host is part of, and what its NPUs are called there."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Absent, Fact, Output, ProbeAnswer, Unreadable, run, unusable_reason
from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.facts.hccn.tool import single_field
from doctor.facts.npu import NpuChips
from doctor.facts.npu_smi import is_unsupported
from doctor.facts.reported_value import require_no_complaint

"""npu-smi's output where the product has no super pods."""

_FIRST_CHIP_SCRIPT = """said=$(npu-smi info -t spod-info -i 0 -c 0 </dev/null 2>&1); code=$?
case "$said" in *"nvalid card id"* | *"Error parameter of"*)
  for pair in $(npu-smi info -m </dev/null 2>/dev/null | while read -r card chip rest; do
      case "$card:$chip:$rest" in
      ([0-9]*:[0-9]*:*Mcu*) ;;
      ([0-9]*:[0-9]*) printf '%s:%s\n' "$card" "$chip" ;;
      esac
    done); do
    said=$(npu-smi info -t spod-info -i "${pair%:*}" -c "${pair#*:}" </dev/null 2>&1); code=$?
    break
  done ;;
esac
printf '%s\n' "$said"
exit $code"""
"""Of the first chip: that of card 0, and where there is none, as in a container, of the first one that is listed."""

_ALL_CHIPS_SCRIPT = """map=$(npu-smi info -m); code=$?
printf '%s\\n' "$map"
[ $code -eq 0 ] || exit $code
printf '%s\\n' "$map" | while read -r card chip rest; do
  case "$card:$chip" in :* | *: | *[!0-9:]*) continue ;; esac
  case "$rest" in *Mcu*) continue ;; esac
  echo "-- $card $chip --"
  said=$(npu-smi info -t spod-info -i "$card" -c "$chip" </dev/null 2>&1)
  printf '%s\\n' "$said"
  case "$said" in *"not support"*) break ;; esac
done
"""
"""The table of all chips, then the output for each of them."""


class SuperPodId(Fact, frozen=True):
    """Which super pod the host is in, and as which server of it.

    Raw output, from npu-smi::

        SDID                           : 37748736
        Super Pod Size                 : 384
        Super Pod ID                   : 0
        Server Index                   : 9
    """

    # All NPUs of a host are in one super pod: its first chip speaks for them.
    probe = run(_FIRST_CHIP_SCRIPT, requires="npu-smi", lane="npu-smi", timeout=20)

    id: int
    server_index: int
    size: int

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SuperPodId:
        output = answer[""]
        text = f"{output.out}\n{output.err}"
        _require_super_pods(text)
        answer.text()
        require_no_complaint("npu-smi", text)
        try:
            numbers = [int(single_field(name, text)) for name in ("Super Pod ID", "Server Index", "Super Pod Size")]
        except ValueError:
            raise Unreadable(
                filled("npu-smi info -t spod-info: {0}", unusable_reason(output) or "not understood")
            ) from None
        return cls(id=numbers[0], server_index=numbers[1], size=numbers[2])


def _require_super_pods(text: str) -> None:
    """Raises: Absent where npu-smi has no such query, as for a product without. In a virtual machine none is known."""
    if is_unsupported(text) and "on a VM" not in text:
        raise Absent("this product has no super pods")


class SuperDevice(msgspec.Struct, frozen=True):
    """One NPU in its super pod."""

    sdid: int
    """Its number there: what a rank table calls super_device_id."""
    super_pod_id: int


class SuperDevices(Fact, frozen=True):
    """The SDID of every NPU, by physical id.

    Raw output, from npu-smi::

        NPU ID     Chip ID     Chip Logic ID     Chip Phy-ID     Chip Name
        0          0           0                 0               Ascend 910_9391
        -- 0 0 --
        SDID                           : 37748736
        Super Pod Size                 : 384
        Super Pod ID                   : 0
        Server Index                   : 9
    """

    # One call after the other: a host with 16 dies may take its time.
    probe = run(_ALL_CHIPS_SCRIPT, requires="npu-smi", root=True, lane="npu-smi", timeout=100)

    by_npu: dict[int, SuperDevice]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SuperDevices:
        output = answer[""]
        _require_super_pods(f"{output.out}\n{output.err}")
        table, *sections = re.split(r"^-- (\d+) (\d+) --$", answer.text(), flags=re.M)
        parts = {
            (int(c), int(d)): text for c, d, text in zip(sections[::3], sections[1::3], sections[2::3], strict=True)
        }
        by_npu: dict[int, SuperDevice] = {}
        unread: dict[str, str] = {}
        for chip in NpuChips.read(ProbeAnswer({"": Output(out=table)}, answer.label)).chips:
            if not chip.has_phy_id:
                raise Unreadable("npu-smi info -m: shows no physical ids, which the SDID depends on")
            text = parts.get((chip.npu, chip.chip), "")
            try:
                by_npu[chip.device] = _parse_super_device(text)
            except ValueError:
                unread[f"NPU {chip.device}"] = filled(
                    "its SDID was not reported: {0}", last_line(text) or "npu-smi printed nothing"
                )
        return cls(by_npu=by_npu, unread=unread)


def _parse_super_device(text: str) -> SuperDevice:
    """Raises: ValueError."""
    sdid, pod = (int(single_field(name, text)) for name in ("SDID", "Super Pod ID"))
    if not 0 <= sdid < 1 << 32 or pod < 0:
        raise ValueError("no such number")
    return SuperDevice(sdid, pod)
