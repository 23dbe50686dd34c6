"""How the NPUs of a host are connected: the relations that npu-smi reports, the health of HCCS, and faults of the L1
switch inside an A3 or A5 server, as the device plugin of MindCluster has logged them.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.facts.npu import NpuChips
from doctor.facts.npu_health import LEVELS, NPU_CODES, FaultCodeTable, FaultLevel
from doctor.facts.npu_smi import (
    CALL_SECONDS,
    block_problems,
    is_unsupported,
    labelled_values,
    read_npu_smi_text,
    strip_escapes,
)
from doctor.facts.reported_value import reported_count, reported_word, table_problem, tool_blocks
from doctor.remote.runtime.reading import matching_paths, names_in, read_text

RELATIONS = frozenset({"X", "SYS", "PHB", "HCCS", "PXB", "PIX", "SIO", "HCCS_SW", "UB", "NA"})
"""Of ``npu-smi info -t topo`` (print_npu_topo_info in npu_info_print_ext.c of github.com/hicann/driver)."""


class NpuTopology(Fact, frozen=True):
    """The relation of every pair of NPUs of a host (``npu-smi info -t topo``).

    Raw output, from npu-smi::

                   NPU0       NPU1       CPU Affinity
        NPU0       X          HCCS       144-167
        NPU1       HCCS       X          144-167

        Legend:

          X    = Self
          HCCS = Connection traversing HCCS.
    """

    probe = run("npu-smi info -t topo", requires="npu-smi", root=True, lane="npu-smi", timeout=20)

    relations: dict[str, str]
    """By pair, lower number first: ``0-1`` is HCCS."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuTopology:
        output = answer[""]
        rows: list[int] = []
        if output.ended == "exited" and is_unsupported(f"{output.out}\n{output.err}"):
            raise Absent("npu-smi shows no topology on this product, or in this container")
        header: list[int] = []
        pairs: dict[tuple[int, int], str] = {}
        for line in strip_escapes(read_npu_smi_text(output)).splitlines():
            cells = line.split()
            numbers = [int(cell) for cell in re.findall(r"(?:NPU|Phy-ID)([0-9]{1,4})\b", line)]
            if not header and len(numbers) > 1:
                header = numbers
            elif header and len(numbers) == 1 and cells and set(cells[1 : len(header) + 1]) <= RELATIONS:
                row = dict(zip(header, cells[1 : len(header) + 1], strict=False))
                rows.append(numbers[0] if len(row) == len(header) else -1)
                pairs |= {(numbers[0], other): relation for other, relation in row.items()}
        relations = {f"{npu}-{other}": relation for (npu, other), relation in pairs.items() if npu < other}
        if not relations:
            raise Unreadable("npu-smi info -t topo: no relation of two NPUs")
        reason = table_problem(pairs, rows, header)
        return cls(relations=relations, unread={"npu-smi info -t topo": reason} if reason else {})


_HCCS_SCRIPT = """table=$(npu-smi info -m </dev/null 2>&1) || { code=$?; printf '%s\\n' "$table"; exit $code; }
printf '%s\\n' "$table" | tr -d '\\r' | while read -r card chip rest; do
  case "$card$chip" in '' | *[!0-9]*) continue ;; esac
  case "$rest" in *Mcu*) continue ;; esac
  echo "-- $card $chip --"
  timeout 5 npu-smi info -t hccs -i "$card" -c "$chip" </dev/null 2>&1
  echo "-- exit $? --"
done
"""


HCCS_COUNTERS = ("hccs error count", "hccs retry count")
"""Packets with a wrong checksum, and those that were sent again."""


class NpuHccs(Fact, frozen=True):
    """The health of every NPU chip's HCCS links (``npu-smi info -t hccs``).

    Raw output, from npu-smi::

        -- 0 0 --
                hccs health status             : OK
                hccs tx packets                : [1993002168   1434439505   1588783520]
                hccs retry count               : [0            0            0]
                hccs error count               : [0            0            0]
        -- exit 0 --
    """

    probe = run(
        _HCCS_SCRIPT, requires="npu-smi", root=True, lane="npu-smi", timeout=60, repeats=True, inventory=NpuChips
    )

    health: dict[str, str]
    """By card and chip, ``0-0``: OK or NOK; a 310P has no such row."""
    counts: dict[str, dict[str, tuple[int, ...]]] = {}
    """Of each link since the NPU started, by `HCCS_COUNTERS` and by card and chip."""
    lanes: dict[str, tuple[int, ...]] = {}
    """How many lanes each link uses, by card and chip; empty where the tool does not tell."""
    first_error_lane: dict[str, str] = {}
    """By card and chip, of those that name one."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuHccs:
        blocks = tool_blocks(read_npu_smi_text(answer[""], is_one_answer=False), r"\d{1,9} \d{1,4}")
        has_ends = any(block.code is not None for block in blocks)  # records of older releases have none
        health: dict[str, str] = {}
        counts: dict[str, dict[str, tuple[int, ...]]] = {name: {} for name in HCCS_COUNTERS}
        lanes: dict[str, tuple[int, ...]] = {}
        first_error_lane: dict[str, str] = {}
        unread: dict[str, str] = {}
        unsupported = 0
        for block, problem in zip(blocks, block_problems(blocks), strict=True):
            (card, chip), text = block.name.split(), block.text
            values = dict(labelled_values(text))
            state = values.get("hccs health status")
            if state in ("OK", "NOK") or (state is None and HCCS_COUNTERS[0] in values):
                health |= {f"{card}-{chip}": state} if state else {}
                try:
                    for name in HCCS_COUNTERS:
                        numbers = _link_numbers({HCCS_COUNTERS[0]: "", **values}, name)
                        counts[name][f"{card}-{chip}"] = tuple(numbers)
                    lanes[f"{card}-{chip}"] = _used_lanes(values)
                    name = "hccs first error lane"
                    if lane := reported_word(name, values.get(name), "[0-9]{1,3}"):
                        first_error_lane[f"{card}-{chip}"] = lane
                except Unreadable as why:
                    problem = str(why)
                if problem := problem or (
                    block.failure("npu-smi", CALL_SECONDS) if has_ends and block.code is None else ""
                ):
                    unread[filled("NPU card {0} chip {1}", card, chip)] = problem
            elif is_unsupported(text):
                unsupported += 1
            else:
                silent = block.failure("npu-smi", CALL_SECONDS) or filled("npu-smi printed nothing")
                unread[filled("NPU card {0} chip {1}", card, chip)] = strip_control_chars(text.strip(), 120) or silent
        is_read = health or any(counts.values())
        if unsupported and not (is_read or unread):
            raise Absent("npu-smi reports no HCCS links on this product, or in this container")
        if not is_read:
            raise Unreadable.of_each(unread, "npu-smi info -m: it lists no chip")
        return cls(health=health, counts=counts, lanes=lanes, first_error_lane=first_error_lane, unread=unread)


def _used_lanes(values: dict[str, str]) -> tuple[int, ...]:
    """Of each link the lesser of its mode and the ones of its lane list, as of ``[4  4]`` and ``[1111  0011]``.

    Raises: Unreadable.
    """
    modes = _link_numbers(values, "hccs lane mode")
    ones = [str(mask).count("1") for mask in _link_numbers(values, "hccs link lane list")]
    return tuple(min(pair) for pair in zip(modes, ones if len(ones) == len(modes) else modes, strict=True))


def _link_numbers(values: dict[str, str], name: str) -> list[int]:
    """The numbers of ``[0   0   0]``; none where there is no such value. Raises: Unreadable."""
    numbers = values[name].strip("[] ").split() or [""] if name in values else []
    counts = [reported_count(name, word) for word in numbers]
    return [count for count in counts if count is not None]


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
