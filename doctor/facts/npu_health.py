"""What every NPU chip reports of its health: the state, the fault codes and their text."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.facts.npu_smi import card_answers, per_card_probe, strip_escapes

FaultLevel = Literal["none", "request", "job", "reset", "replace", "degraded", "unlisted"]
"""What a fault code demands. none: nothing. request: the operation is repeated. job: the job is started again.
reset: the NPU is reset. replace: the NPU is taken out of service. degraded: it works, slower. unlisted: not in the
vendor's list."""

_CODES: dict[FaultLevel, str] = {
    "none": """80E21007 80E38003 80F78006 80C98006 80CB8006 81318006 80A18006 80A18005 80FB8000 8C1F8609 80CD8006
        80CD8003 80A38006 80A38003 80A58006 80A58003 80DE1805 80F18006 80F18003 80DF8006 80E01805 80E18400 80E01809
        80E18401 80E00209 80F38006 80F38003 80E18006 80D38009 819B800D 80DD8008 80DD8007 80B98006 80BD8006 819B8006
        80DE1803 819D8000 81998006 81978006 81978004 815F8006 815F8004 81338006 81338004 817F8006 817F8004 816F8006
        816F8004 814F8006 814F8004 81938006 81938004 81478006 81478004 813B8006 813B8004 81578006 81578004 81958006
        81958004 81078603 8C2FA009 80B78006 80B78005 80E1800F 80DE0200 814D8006 8C1F860B 8C1F8608 4C1F8608 819B8003
        80DF8401 80DF8400 80818200 80818201 80818202 80818203 80818204 80818205 80F38009""",
    "request": """80C98008 80C98002 80C98003 80C98009 80CB8002 80CB8008 80CB8009 80CF8003 81318008 80D58000 80D58009
        80D98008 80DB800A 80DB8000 80DD8000 80DD8003 80C98000 81AB800D 81AB8003 80BD8000 80BB8009 80BD8003 80BD8009
        80BB8000 80BB8003 80BB8008 80BB800A 81AB8008 80C9800A 80CB800A""",
    "job": "8C204E00 80E01801 81B38009 81B38004",
    "reset": """8C0E4E00 8C104E00 8C0C4E00 8C044E00 8C064E00 8C17A005 8C1DA005 8C19A005 8C0A4E00 8C084E00 8C464E00
        8C124E00 8C03A000 8C1FA006 40F84E00 80E24E00 80E21E01 80E38008 80E3A202 80E3A203 80E39200 819B800A 80E2120D
        80E78000 80E78008 80FA4E00 812E4E00 80C78008 80F78009 80F78008 80F78003 80E18404 80FB8005 80A18008 80CD8008
        80A38008 80A58008 80DE1801 80F18008 80F18000 80F1800A 80CF8000 80DF8000 80DF8009 80DF8008 80DF800A 80F38008
        80F2180D 80E18005 80E18008 80E1800A 812F8000 80B98000 80B98008 80BD8008 80CB8001 81998009 81998008 81978008
        815F8008 81338008 81478008 813B8008 81578008 81958008 80B78000 80B58000 81498004 80F78C02 80F78C03 80F78C04
        81B38008 80E18000 80E21008 80C98001 80E58005 80E58009 80E58E02 80E58E03 81938008 80E44E00 80CF8009 80CF8008
        813B8002 81338002 81578002 81958002 81938002 81478002 81978002 815F8002 81C9800A 81C7800A 81C5800A 813F800A
        8139800A 8145800A 8C4BA00C 80E3A207 817F8008 816F8008 814F8008""",
    "replace": """80E3A201 80E18402 80E0020B 817F8002 816F8002 814F8002 80818C00 80818C05 80DF8402 4C4BA00C""",
    "degraded": "81A3880C 81AD8605 80E20207 81078605 80DE0207 8C2FA001 819B8605 80818C06 8C1F860A 80E18405",
}
"""Source: component/ascend-device-plugin/build/faultCode.json of github.com/Ascend/mind-cluster, whose levels are
NotHandle, RestartRequest, RestartBusiness, FreeRestartNPU and RestartNPU, SeparateNPU, SubHealth."""

LEVEL_OF_CODE: dict[str, FaultLevel] = {code: level for level, codes in _CODES.items() for code in codes.split()}

REMEDIES: dict[FaultLevel, str] = {
    "none": "no action: the driver has dealt with it",
    "request": "repeat the operation",
    "job": "start the job again",
    "degraded": "the NPU works, slower; keep synchronous jobs off it",
    "reset": "reset the NPU while no job runs, then check again",
    "replace": "take the NPU out of service and report it to the vendor",
    "unlisted": "look the code up in the vendor's list of health faults",
}
"""What to do, from the least to the most."""

JOB_LEVELS: frozenset[FaultLevel] = frozenset({"none", "request", "job", "degraded"})
"""Faults with which the vendor's scheduler lets the next job start on the NPU."""


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
        return {LEVEL_OF_CODE.get(code.upper(), "unlisted") for code in self.codes}


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

    probe = per_card_probe("health")

    chips: tuple[ChipHealth, ...]
    refused: dict[int, str]
    """Cards that npu-smi lists and that did not answer, and the message."""

    def of(self, npu: int, chip: int) -> ChipHealth | None:
        """The report of one chip; None when there is none."""
        return next((report for report in self.chips if (report.npu, report.chip) == (npu, chip)), None)

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuHealth:
        chips: list[ChipHealth] = []
        refused: dict[int, str] = {}
        unread: dict[str, str] = {}
        for card in card_answers(answer):
            reports = _parse_reports(card.card, card.text)
            if card.code == 0 and reports:
                chips += reports
            elif card.code in (None, 0, 124):
                unread[filled("NPU card {0}", card.card)] = filled("health: {0}", card.problem or "not understood")
            else:
                refused[card.card] = card.problem
        return cls(chips=tuple(chips), refused=refused, unread=unread)


def _parse_reports(card: int, text: str) -> list[ChipHealth]:
    """One report a chip: its id follows its values, precedes them, or is left out where a card is one chip."""
    reports: list[ChipHealth] = []
    health, chip, field = "", None, ""
    codes: list[str] = []
    texts: list[str] = []

    def close(number: int | None) -> None:
        nonlocal health
        if health and number is not None:
            reports.append(
                ChipHealth(card, number, health, tuple(codes), strip_control_chars(joined("; ", texts), 200))
            )
        health = ""
        codes.clear()
        texts.clear()

    for line in text.splitlines():
        label, colon, value = (part.strip() for part in strip_escapes(line).partition(":"))
        name = " ".join(label.split())
        if name in ("Health Status", "Health") and colon:
            close(chip if chip is not None else len(reports))
            health, field = value if re.fullmatch(r"[A-Za-z]{1,20}", value) else "", name
        elif name == "Chip ID" and re.fullmatch(r"[0-9]{1,4}", value):
            chip = None if health else int(value)
            close(int(value))
        elif name == "Chip Name" and value.upper() == "MCU":
            close(None)
        elif name == "Error Code" or (not colon and field == "Error Code"):
            field = "Error Code"
            codes += re.findall(r"\b[0-9A-Fa-f]{8}\b", value if colon else name)
        elif name == "Error Information" or (not name and colon and field == "Error Information"):
            field = "Error Information"
            texts += [value] if value not in ("", "NA") else []
    close(chip if chip is not None else len(reports))
    return reports
