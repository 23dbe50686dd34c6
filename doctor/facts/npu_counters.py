"""What every NPU card counts and is rated for: PCIe errors, clock rates, whether driver and firmware fit."""

from __future__ import annotations

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, Unreadable
from doctor.engine.texts import filled
from doctor.facts.npu import NpuChips
from doctor.facts.npu_smi import labelled_values, per_card_probe, read_cards
from doctor.facts.reported_value import LACKED, reported_count, reported_word

PCIE_COUNTERS = ("TX Error Count", "RX Error Count", "Lcrc Error Count", "Ecrc Error Count")
"""Of ``npu-smi info -t pcie-err``; its Retry Count is no error."""


class NpuPcieErrors(Fact, frozen=True):
    """The PCIe errors that each NPU card has counted (``npu-smi info -t pcie-err``).

    Raw output, from npu-smi::

        -- 0 --
                NPU ID                         : 0
                Chip Count                     : 1

                TX Error Count                 : 0
                RX Error Count                 : 0
                Lcrc Error Count               : 0
                Ecrc Error Count               : 0
                Retry Count                    : 0
                Chip ID                        : 0
        -- exit 0 --
    """

    probe = per_card_probe("pcie-err", NpuChips)

    by_card: dict[int, dict[str, int]]
    """Counts by name, summed over the chips of a card."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuPcieErrors:
        by_card, unread = read_cards(answer, _parse_pcie_errors)
        return cls(by_card=by_card, unread=unread)


def _parse_pcie_errors(text: str) -> dict[str, int] | None:
    counts: dict[str, int] = {}
    for label, value in labelled_values(text):
        count = reported_count(label, value) if label in PCIE_COUNTERS else None
        if count is not None:
            counts[label] = counts.get(label, 0) + count
    return counts or None


class RunningClock(msgspec.Struct, frozen=True):
    """The clock of a card's AI cores as it was read."""

    usage: int
    """Per cent of the time in which the cores computed."""
    megahertz: int
    rated: int


class NpuFrequencies(Fact, frozen=True):
    """The rated clock of each NPU card's AI cores, in MHz (``npu-smi info -t common``).

    Raw output, from npu-smi::

        -- 1 --
                NPU ID                         : 1
                Chip Count                     : 1

                Chip ID                        : 0
                Aicore Usage Rate(%)           : 0
                Aicore Freq(MHZ)               : 1800
                Aicore curFreq(MHZ)            : 800
                Temperature(C)                 : 46
                NPU Real-time Power(W)         : 93.4
        -- exit 0 --
    """

    probe = per_card_probe("common", NpuChips)

    by_card: dict[int, int]
    running: dict[int, RunningClock] = {}
    """Of the cards that report how busy their cores are, and at which clock."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuFrequencies:
        clocks, unread = read_cards(answer, _parse_clocks)
        running = {card: max(chips, key=lambda chip: chip.usage) for card, (_, chips) in clocks.items() if chips}
        return cls(by_card={card: rated for card, (rated, _) in clocks.items()}, running=running, unread=unread)


_CLOCKS = ("aicore usage rate(%)", "aicore curfreq(mhz)", "aicore freq(mhz)")


def _parse_clocks(text: str) -> tuple[int, list[RunningClock]] | None:
    """The lowest rated clock of a card's chips, and how they run; an idle core runs below it (curFreq)."""
    values: dict[str, list[int]] = {name: [] for name in _CLOCKS}
    for label, value in labelled_values(text):
        count = reported_count(label, value) if label.lower() in _CLOCKS else None
        if count is not None:
            values[label.lower()].append(count)
    is_whole = len({*map(len, values.values())}) == 1  # else a value of one chip would stand beside another's
    chips = [RunningClock(*row) for row in zip(*values.values(), strict=True)] if is_whole else []
    return (min(values[_CLOCKS[2]]), chips) if values[_CLOCKS[2]] else None


STATE = "Compatibility"


class NpuCompatibility(Fact, frozen=True):
    """Whether npu-smi calls driver and firmware of each NPU card compatible (``npu-smi info -t board``).

    Raw output, from npu-smi::

        -- 0 --
                NPU ID                         : 0
                Software Version               : 23.0.5
                Firmware Version               : 7.1.0.7.220
                Compatibility                  : OK
        -- exit 0 --
    """

    probe = per_card_probe("board", NpuChips)

    by_card: dict[int, str]
    """OK, NOK, UNKNOWN or NOT SUPPORT."""
    firmware: dict[int, str]
    """Firmware version by card, where it is stated."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuCompatibility:
        boards, unread = read_cards(answer, _parse_board)
        states = {card: state for card, board in boards.items() if (state := board.get(STATE, ""))}
        firmware = {card: board["Firmware Version"] for card, board in boards.items() if "Firmware Version" in board}
        if not states:
            raise Unreadable("npu-smi info -t board: it states no compatibility")
        unread |= {filled("NPU card {0}", card): filled("{0}: {1}", STATE, LACKED) for card in boards.keys() - states}
        return cls(by_card=states, firmware=firmware, unread=unread)


def _parse_board(text: str) -> dict[str, str] | None:
    """Raises: Unreadable where the state is no word of the tool."""
    board = dict(labelled_values(text))
    state = reported_word(STATE, board.get(STATE), "(?i:OK|NOK|NOT OK|UNKNOWN|NOT SUPPORT)")
    return {**board, STATE: state} if board else None
