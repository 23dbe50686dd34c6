"""How the NPUs of a host are connected to each other: the relations that npu-smi reports, and the health of HCCS."""

from __future__ import annotations

import re

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.facts.npu import NpuChips
from doctor.facts.npu_smi import UNSUPPORTED_PATTERN, block_problems, labelled_values, read_npu_smi_text, strip_escapes
from doctor.facts.reported_value import reported_count, reported_word, table_problem, tool_blocks

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
        if output.ended == "exited" and re.search(UNSUPPORTED_PATTERN, f"{output.out}\n{output.err}", re.I):
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
                    filled("npu-smi's output was cut off") if has_ends and block.code is None else ""
                ):
                    unread[filled("NPU card {0} chip {1}", card, chip)] = problem
            elif re.search(UNSUPPORTED_PATTERN, text, re.I):
                unsupported += 1
            else:
                unread[filled("NPU card {0} chip {1}", card, chip)] = strip_control_chars(
                    text.strip() or "no answer in 5 s", 120
                )
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
