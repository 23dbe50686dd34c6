"""Published outputs of real machines are read right; no card that is well is accused, none that is ill passes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.facts.npu import Chip, NpuChips
from doctor.facts.npu_health import NpuHealth
from doctor.facts.npu_table import NpuTable
from tests.examples import examples
from tests.facts.answers import learned, read_outputs
from tests.facts.npu_transcripts import OTHERS, TABLES, Printed, Table, text_of

LEAST = 100
"""Distinct outputs."""
LEAST_RIGHT = 0.95


def pair(text: str) -> int | None:
    """The total of ``used / total``; None for none."""
    return int(text.partition("/")[2]) if text else None


def read_table(table: Table) -> NpuTable:
    value = read_outputs(NpuTable, one=Output(out=text_of(table)))
    assert isinstance(value, NpuTable), value
    return value


def is_table_right(table: Table) -> bool:
    value = read_table(table)
    cards = [(c.npu, c.chip, c.npu if c.device is None else c.device, c.name, c.health, c.bus) for c in table.cards]
    return (
        [(s.npu, s.chip, s.device, s.name, s.health, s.bus) for s in value.npus] == cards
        and [s.hbm_total for s in value.npus] == [pair(c.hbm) for c in table.cards]
        and [s.temperature for s in value.npus] == [int(c.temperature) for c in table.cards]
        and [(p.npu, p.chip, p.pid, p.name, p.megabytes) for p in value.processes] == list(table.processes or ())
        and bool(value.process_problem) == (table.processes is None)
        and value.unread == {}
    )


def verdicts(table: Table) -> tuple[int, int]:
    """False errors and false OKs of the checks that look at the table alone."""
    value = read_table(table)
    chips = NpuChips(chips=tuple(Chip(s.npu, s.chip, s.device, s.name) for s in value.npus))
    unhealthy, low = (
        load_check(bundled_folder("checks") / f"{name}.py").function for name in ("npu_unhealthy", "npu_hbm_low")
    )
    accused = {finding.values["npu"] for finding in unhealthy(value, None, chips, None)}
    accused |= {finding.values["npu"] for finding in low(value)}
    ill = {c.npu if c.device is None else c.device for c in table.cards if c.health != "OK"}
    return len(accused - ill), len(ill - accused)


def summary(fact: Fact) -> Any:  # noqa: PLR0911 - one form a kind
    """What a fact holds, in the form of `Printed.expected`."""
    if isinstance(fact, NpuHealth):
        return [(report.health, report.codes) for report in fact.chips]
    if isinstance(fact, NpuChips):
        return [(c.npu, c.chip, c.device, c.name) for c in fact.chips]
    kind = type(fact).__name__
    if kind == "NpuStart":
        return fact.failure.kind if fact.failure else fact.cards
    if kind == "NpuMemoryErrors":
        (errors,) = fact.by_card.values()
        return errors.double_bit, errors.isolated
    if not fact.by_npu:
        return "unset"
    (value,) = fact.by_npu.values()
    if kind == "LinkHistory":
        return tuple(state for _, state in value.changes)
    if kind == "Neighbours":
        return value.kind, value.port
    if kind == "VnicAddresses":
        return str(value.address.ip)
    return value if isinstance(value, (int, str, bool)) else str(value)


def is_printed_right(printed: Printed) -> bool:
    output = Output(out=printed.text, code=printed.code)
    if printed.fact.probe.repeats:
        output = Output(out=f"-- 0 --\n{printed.text}-- exit {printed.code} --\n")
    key = "0" if printed.fact.probe.each else ""
    value = learned(printed.fact, {key: output})
    if isinstance(value, Absent):
        return isinstance(printed.expected, str) and str(value).startswith(printed.expected)
    return bool(summary(value) == printed.expected)


def test_the_figure(record_property: Any) -> None:
    """At least 100 distinct outputs, 95 % right, no false OK, no false error."""
    texts = {text_of(table) for table in TABLES} | {printed.text for printed in OTHERS}
    assert len(texts) == len(TABLES) + len(OTHERS) - REPEATED >= LEAST
    right = sum(map(is_table_right, TABLES)) + sum(map(is_printed_right, OTHERS))
    false_errors, false_ok = (sum(numbers) for numbers in zip(*map(verdicts, TABLES), strict=True))
    figure = f"{right} of {len(TABLES) + len(OTHERS)} outputs right, {false_errors} false errors, {false_ok} false OK"
    print(figure)
    record_property("figure", figure)
    assert right >= LEAST_RIGHT * (len(TABLES) + len(OTHERS)), figure
    assert (false_errors, false_ok) == (0, 0), figure


REPEATED = 1
"""The same refusal to two commands."""


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.source)
def test_a_table(table: Table) -> None:
    assert is_table_right(table), read_table(table)


@pytest.mark.parametrize("printed", OTHERS, ids=lambda printed: f"{printed.fact.__name__}-{printed.source[-20:]}")
def test_another_output(printed: Printed) -> None:
    assert is_printed_right(printed)


@pytest.mark.parametrize("change", ["crlf", "ansi", "noise", "indented"])
def test_how_a_terminal_changes_a_table(change: str) -> None:
    """As pasted from PowerShell, with colours, with the driver's lines on stdout, and quoted in an issue."""
    for table in TABLES:
        text = text_of(table)
        changed = {
            "crlf": text.replace("\n", "\r\n"),
            "ansi": text.replace("OK ", "\x1b[32mOK\x1b[0m "),
            "noise": "DrvMngGetConsoleLogLevel failed. (ret=4)\n\ufffd\n" + text,
            "indented": "".join(f"> {line}\n" for line in text.splitlines()),
        }[change]
        assert read_outputs(NpuTable, one=Output(out=changed)).npus == read_table(table).npus, table.source


def test_a_table_with_a_column_more_is_read_by_its_names() -> None:
    for table in TABLES:
        text = text_of(table)
        lines = [
            f"| {'More' if 'Name ' in line or 'Bus-Id' in line else '7'} {line}"
            if line.startswith("|") and line.count("|") > 3
            else line
            for line in text.splitlines()
        ]
        value = read_outputs(NpuTable, one=Output(out="\n".join(lines)))
        assert not isinstance(value, Unreadable), table.source
        assert [s.health for s in value.npus] == [c.health for c in table.cards], table.source


@pytest.mark.parametrize("power", ["0.0", "0", "NA", "-"])
def test_a_card_without_power_beside_others_that_show_theirs_is_unread(power: str) -> None:
    """A card of which the tool knows the power shows some watts: also an idle one has 60 and more."""
    table = next(
        table for table in TABLES if len({card.npu for card in table.cards}) > 1 and table.cards[0].power > "1"
    )
    cards = [card._replace(npu=number) for number, card in enumerate(table.cards[:1] * 4)]
    ill = [card._replace(power=power) if card.npu == 2 else card for card in cards]
    assert read_table(table._replace(cards=cards)).unread == {}
    assert list(read_table(table._replace(cards=ill)).unread) == ["NPU 2"]


ROW = st.lists(st.text("0123456789 /.:-NAOKWarning?\xa0\ufffd", max_size=12), min_size=1, max_size=6)


@settings(max_examples=examples(60))
@given(st.sampled_from(TABLES), st.integers(0, 40), ROW, st.integers(0, 60))
def test_a_strange_row_takes_no_other_with_it(table: Table, place: int, cells: list[str], cut: int) -> None:
    """A row put in or taken out, and bytes that are no text: the other cards stay, and nothing becomes healthy."""
    lines = text_of(table).splitlines()
    rows = [number for number, line in enumerate(lines) if line.startswith("|") and number > 4]
    lines.insert(rows[place % len(rows)], "| " + " | ".join(cells) + " |")
    original = {(state.npu, state.chip): state for state in read_table(table).npus}
    value = read_outputs(NpuTable, one=Output(out="\n".join(lines)))
    if isinstance(value, NpuTable):
        kept = {(state.npu, state.chip): state for state in value.npus}
        same = {key for key, state in kept.items() if original.get(key) == state}
        assert len(original.keys() - same) <= 1 or value.unread
    raw = text_of(table).encode()[: -cut or None] + b"\xff\xfe|\x00"
    value = read_outputs(NpuTable, one=Output(out=raw.decode("utf-8", "replace")))
    assert isinstance(value, Absent) or all(state in original.values() for state in value.npus)
