"""What every NPU chip reports of its health: the state, the fault codes and their text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import beginning, filled, joined
from doctor.engine.toml_compat import read_table
from doctor.facts.npu import NpuChips
from doctor.facts.npu_smi import card_answers, per_card_probe, strip_escapes
from doctor.facts.reported_value import value_state

FaultLevel = Literal["none", "request", "job", "degraded", "reset", "aside", "replace", "unlisted"]
"""What a fault code demands. none: nothing. request: the operation is repeated. job: the job is started again.
degraded: the NPU works, slower. reset: the NPU is reset. aside: no new job is started on it. replace: it is taken
out of service. unlisted: not in the vendor's list."""

LEVELS: dict[str, FaultLevel] = {
    "NotHandle": "none",
    "RestartRequest": "request",
    "RestartBusiness": "job",
    "SubHealth": "degraded",
    "FreeRestart": "reset",
    "Restart": "reset",
    "Reset": "reset",
    "PreSeparate": "aside",
    "Separate": "replace",
}
"""Of MindCluster, which starts no job from FreeRestart on; of an NPU, some have NPU behind them."""

REMEDIES: dict[FaultLevel, str] = {
    "none": "no action: the driver has dealt with it",
    "request": "repeat the operation",
    "job": "start the job again",
    "degraded": "the NPU works, slower; keep synchronous jobs off it",
    "unlisted": "look the code up in the vendor's list of health faults",
    "reset": "reset the NPU while no job runs, then check again",
    "aside": "start no job on the NPU, and report it to the vendor",
    "replace": "take the NPU out of service and report it to the vendor",
}
"""What to do, from the least to the most."""

STOPS: frozenset[FaultLevel] = frozenset({"reset", "aside", "replace"})
"""Faults with which the vendor's scheduler starts no job on the NPU."""

HealthVerdict = Literal["healthy", "warning", "unknown", "error"]


NPU_CODES = str(Path(__file__).with_name("npu_fault_codes.toml"))


class FaultCodeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fault codes of NPUs and of their switch, by the level that MindCluster gives them."""

    npu: dict[str, list[str]]
    switch: dict[str, list[str]]


@cache
def fault_levels() -> dict[str, FaultLevel]:
    """What each fault code of NPUs demands. Source: npu_fault_codes.toml beside this module."""
    table = read_table(Path(NPU_CODES), FaultCodeTable)
    order = list(REMEDIES)
    levels = [(LEVELS[name.removesuffix("NPU")], codes) for name, codes in table.npu.items()]
    return {
        code.upper(): level for level, codes in sorted(levels, key=lambda item: order.index(item[0])) for code in codes
    }


def judge_health(word: str, codes: tuple[str, ...]) -> HealthVerdict:
    """What the word and the codes of one chip mean together: the codes decide where the vendor's list has them.

    >>> judge_health("OK", ()), judge_health("OK", ("80E18402",)), judge_health("Warning", ("80E01805",))
    ('healthy', 'error', 'healthy')
    """
    levels = code_levels(codes)
    if levels & STOPS or word not in ("OK", "Warning") or (word == "Warning" and not codes):
        return "error"
    if "unlisted" in levels:
        return "unknown"
    return "warning" if levels - {"none"} else "healthy"


def code_levels(codes: tuple[str, ...]) -> set[FaultLevel]:
    """What the codes demand; empty without a code."""
    return {fault_levels().get(code.upper(), "unlisted") for code in codes}


class ChipHealth(msgspec.Struct, frozen=True):
    """What one chip reports."""

    npu: int
    """The card."""
    chip: int
    health: str
    """OK, Warning, Alarm, Critical or UNKNOWN."""
    codes: tuple[str, ...] = ()
    """Fault codes, eight hexadecimal digits each."""
    text: str = ""
    """The vendor's text of the codes."""

    @property
    def levels(self) -> set[FaultLevel]:
        """What the codes demand; empty without a code."""
        return code_levels(self.codes)

    @property
    def verdict(self) -> HealthVerdict:
        """What its own word and codes mean."""
        return judge_health(self.health, self.codes)


class NpuHealth(Fact, frozen=True):
    """The health of every NPU chip, with its fault codes (``npu-smi info -t health``, once a card).

    Raw output, from npu-smi::

        -- 0 --
                NPU ID                         : 0
                Chip Count                     : 1

                Health Status                  : OK
                Error Code                     : NA
                Error Information              : NA
                Chip ID                        : 0
        -- exit 0 --
    """

    probe = per_card_probe("health", NpuChips)

    chips: tuple[ChipHealth, ...]
    refused: dict[int, str]
    """Cards that npu-smi lists and that did not answer, and the message."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuHealth:
        chips: list[ChipHealth] = []
        refused: dict[int, str] = {}
        unread: dict[str, str] = {}
        for card in card_answers(answer):
            reports, strange = _parse_reports(card.card, card.text)
            if strange := strange or card.beside:
                unread[filled("NPU card {0}", card.card)] = filled("health: {0}", strange)
            if card.code == 0 and reports:
                chips += reports
            elif card.code in (None, 0, 124):
                problem = filled("health: {0}", card.problem or "not understood")
                unread.setdefault(filled("NPU card {0}", card.card), problem)
            else:
                refused[card.card] = card.problem
        return cls(chips=tuple(chips), refused=refused, unread=unread)


_CODE = re.compile(r"(?<![0-9A-Za-z])(?:0[xX])?([0-9A-Fa-f]{8,9})(?![0-9A-Za-z])")


def _parse_reports(card: int, text: str) -> tuple[list[ChipHealth], str]:
    """One report a chip: its id follows its values, precedes them, or is left out where a card is one chip.

    Second the first line of a state or code that is not understood.
    """
    reports: list[ChipHealth] = []
    health, chip, field, strange = "", None, "", ""
    codes: list[str] = []
    texts: list[str] = []

    def close(number: int | None) -> None:
        nonlocal health
        if health and number is not None:
            reports.append(
                ChipHealth(card, number, health, tuple(codes), strip_control_chars(joined("; ", texts), 200))
            )
        health = ""
        del codes[:], texts[:]

    for line in text.splitlines():
        label, colon, value = (part.strip() for part in strip_escapes(line).partition(":"))
        name = " ".join(label.split())
        if name in ("Health Status", "Health") and colon:
            close(chip if chip is not None else len(reports))
            health, field = value if re.fullmatch(r"[A-Za-z]{1,20}", value) else "", name
            strange = strange or ("" if health or value_state(value) == "absent" else f"{name}: {beginning(value, 60)}")
        elif name == "Chip ID" and re.fullmatch(r"[0-9]{1,4}", value):
            chip = None if health else int(value)
            close(int(value))
        elif name == "Chip Name" and value.upper() == "MCU":
            close(None)
        elif name == "Error Code" or (not colon and field == "Error Code"):
            field = "Error Code"
            codes += _CODE.findall(value if colon else name)
            if colon and not strange and value_state(rest := _CODE.sub("", value).strip(" ,;")) != "absent":
                strange = f"{name}: {beginning(rest, 60)}"
        elif name == "Error Information" or (not name and colon and field == "Error Information"):
            field = "Error Information"
            texts += [value] if value not in ("", "NA") else []
    close(chip if chip is not None else len(reports))
    return reports, strip_control_chars(strange, 80)
