"""The super pod that an A3 host is part of, and what its NPUs are called there."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Absent, Answer, Fact, Output, Unreadable, run, trouble
from doctor.facts.hccn.tool import field, last_words
from doctor.facts.npu import NpuChips

_NONE = r"does not support|not supported|Command or option is not found"
"""What npu-smi says where the product has no super pods."""

_EACH = """map=$(npu-smi info -m); code=$?
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
"""The table of all chips, then what each of them says."""


class SuperPod(Fact, frozen=True):
    """Which super pod the host is in, and as which server of it."""

    # All NPUs of a host are in one super pod: its first chip speaks for them.
    probe = run("npu-smi info -t spod-info -i 0 -c 0", requires="npu-smi", lane="npu-smi", timeout=20)

    id: int
    server: int
    size: int

    @classmethod
    def read(cls, answer: Answer) -> SuperPod:
        output = answer[""]
        text = f"{output.out}\n{output.err}"
        if re.search(_NONE, text):
            raise Absent("this product has no super pods")
        answer.text()
        try:
            numbers = [int(field(name, text)) for name in ("Super Pod ID", "Server Index", "Super Pod Size")]
        except ValueError:
            raise Unreadable(f"npu-smi info -t spod-info: {trouble(output) or 'not understood'}") from None
        return cls(id=numbers[0], server=numbers[1], size=numbers[2])


class SuperDevice(msgspec.Struct, frozen=True):
    """One NPU in its super pod."""

    sdid: int
    """Its number there: what a rank table calls super_device_id."""
    pod: int


class SuperDevices(Fact, frozen=True):
    """The SDID of every NPU, by physical id."""

    # One call after the other: a host with 16 dies may take its time.
    probe = run(_EACH, requires="npu-smi", root=True, lane="npu-smi", timeout=100)

    by_npu: dict[int, SuperDevice]

    @classmethod
    def read(cls, answer: Answer) -> SuperDevices:
        output = answer[""]
        if re.search(_NONE, f"{output.out}\n{output.err}"):
            raise Absent("this product has no super pods")
        table, *said = re.split(r"^-- (\d+) (\d+) --$", answer.text(), flags=re.M)
        parts = {(int(c), int(d)): text for c, d, text in zip(said[::3], said[1::3], said[2::3], strict=True)}
        by_npu: dict[int, SuperDevice] = {}
        unread: dict[str, str] = {}
        for chip in NpuChips.read(Answer({"": Output(out=table)}, answer.what)).chips:
            if not chip.has_phy_id:
                raise Unreadable("npu-smi info -m: shows no physical ids, and an SDID cannot be told without them")
            text = parts.get((chip.npu, chip.chip), "")
            try:
                by_npu[chip.device] = _super_device(text)
            except ValueError:
                unread[f"NPU {chip.device}"] = f"its SDID was not told: {last_words(text) or 'npu-smi said nothing'}"
        return cls(by_npu=by_npu, unread=unread)


def _super_device(text: str) -> SuperDevice:
    """Raises: ValueError."""
    sdid, pod = (int(field(name, text)) for name in ("SDID", "Super Pod ID"))
    if not 0 <= sdid < 1 << 32 or pod < 0:
        raise ValueError("no such number")
    return SuperDevice(sdid, pod)
