"""Faults of the L1 switch inside an A3 or A5 server, as the device plugin of MindCluster has logged them."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.toml_compat import read_table
from doctor.facts.npu_health import LEVELS, NPU_CODES, FaultCodeTable, FaultLevel
from doctor.remote.runtime.reading import matching_paths, names_in, read_text

PLUGIN_LOG = "/var/log/mindx-dl/devicePlugin/devicePlugin.log"

_CODE = r"\[0x[0-9a-f]{8},(?:[0-9]{1,10}|na),(?:cpu|npu|L2|na),na\]"
_EVENT = re.compile(rf"switch subscribe got fault:(.{{0,600}}?)faultCode:({_CODE})")
_ASSERTION = re.compile(r"Assertion: ?(?:0x)?([0-9])")
_PLACE = re.compile(r"SwitchChipId: ?(0x[0-9a-f]{1,8}|[0-9]{1,10}), SwitchPortId: ?(0x[0-9a-f]{1,8}|[0-9]{1,10})")
_QUERY = re.compile(r"switch of 910A3 get fault codes: \[\]string\{(.{0,8000}?)\}\s*$")
_COUNT = re.compile(r"successfully updated switch fault codes \(count: 0\)")


def read_plugin_log(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: what the end of the plugin's log says of switches, and whether it is of this boot.

    It is where a plugin that runs has it open, also under a wrong clock; else by the time of its last line.
    """
    path = "/var/log/mindx-dl/devicePlugin/devicePlugin.log"
    boot = [line.split()[1] for line in read_text("/proc/stat", 1 << 22).splitlines() if line.startswith("btime ")]
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - 4194304))
        lines = file.read(4194304).decode("utf-8", "replace").splitlines()
    messages = [line[:9000] for line in lines if "switch" in line and "fault" in line][-200:]
    plugins = [name for name in matching_paths("/proc/[0-9]*/comm") if read_text(name, 64) == "device-plugin\n"]
    opened = [name[:-4] + "fd/" + fd for name in plugins for fd in names_in(name[:-4] + "fd")]
    is_open = any(os.path.exists(fd) and os.path.samestat(os.stat(fd), status) for fd in opened)
    return {"lines": messages, "since_boot": is_open or not boot or status.st_mtime >= float(boot[0])}


class SwitchFault(msgspec.Struct, frozen=True):
    """One fault that the switch has now."""

    code: str
    """As in SwitchFaultCode.json: alarm, fault, what the port leads to."""
    chip: str = ""
    port: str = ""
    """Empty where the log names none, and for a fault of the whole chip."""


class NpuSwitchFaults(Fact, frozen=True):
    """The faults of the host's L1 switch that have come and not gone, by the log of MindCluster's device plugin.

    Its lines are printed by deviceswitch/ascend_switch.go of github.com/Ascend/mind-cluster; Assertion 1 is a fault
    that came, 0 one that went.

    Raw output, as JSON, with the lines that speak of switches::

        {"since_boot": true, "lines": [
          "switch subscribe got fault:SwitchFaultEvent{Assertion:0x1}, faultCode:[0x00f103b0,155907,na,na]"]}
    """

    probe = ask(read_plugin_log, requires=PLUGIN_LOG, root=True)

    faults: tuple[SwitchFault, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuSwitchFaults:
        if "" in answer and answer[""].ended == "absent":
            raise Absent("MindCluster's device plugin has no log on the host")
        data = answer.json()
        if not data["since_boot"]:
            raise Absent("MindCluster's device plugin has not run since the host was started")
        present: dict[SwitchFault, None] = {}
        for line in data["lines"]:
            if match := _QUERY.search(line):
                current = {fault.code: fault for fault in present}
                present = {current.get(code, SwitchFault(code)): None for code in re.findall(_CODE, match[1])}
            elif _COUNT.search(line):
                present = {}
            elif match := _EVENT.search(line):
                place, assertion = _PLACE.search(match[1]), _ASSERTION.search(match[1])
                fault = SwitchFault(match[2], *(map(_number, place.groups()) if place else ()))
                if assertion and assertion[1] == "0":
                    present.pop(fault, None)
                else:
                    present[fault] = None
        return cls(faults=tuple(present))


def _number(text: str) -> str:
    """A number of a chip or port; empty for the one that stands for none."""
    number = int(text, 0)
    return "" if number == 0xFFFFFFFF else strip_control_chars(str(number), 12)


@cache
def _switch_levels() -> dict[str, FaultLevel]:
    table = read_table(Path(NPU_CODES), FaultCodeTable).switch
    return {code: LEVELS[level] for level, codes in table.items() for code in codes}


def switch_fault_level(code: str) -> FaultLevel:
    """What the vendor's scheduler makes of a fault of the switch.

    >>> switch_fault_level("[0x08520003,na,npu,na]"), switch_fault_level("[0x00000001,1,na,na]")
    ('replace', 'unlisted')
    """
    return _switch_levels().get(code, "unlisted")
