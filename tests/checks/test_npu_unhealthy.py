"""What npu-unhealthy finds."""

from __future__ import annotations

import pytest

from doctor.engine.evaluate import evaluate_check
from doctor.engine.fact import Output
from doctor.facts.npu import Chip, NpuChips
from doctor.facts.npu_health import ChipHealth
from doctor.facts.npu_table import NO_VALUES, NpuTable
from tests.checks.containers import place
from tests.checks.devices import health, of, state, table, unknown
from tests.checks.run_check import Facts, check
from tests.facts.answers import learned
from tests.facts.device_reports import hbm_table

look = of("npu_unhealthy")
CHIPS = NpuChips(chips=(Chip(0, 0, 0, "Ascend 910B3"), Chip(1, 0, 1, "Ascend 910B3")))


def test_healthy_npus() -> None:
    assert look(table(state(0), state(1)), None, None, None) == []
    assert look(table(state(0), state(1)), health(), CHIPS, place()) == []


@pytest.mark.parametrize("word", ["Warning", "Alarm", "Critical", "UNKNOWN"])
def test_any_other_word_is_named_with_its_npu(word: str) -> None:
    (finding,) = look(table(state(0), state(3, npu=1, chip=1, health=word)), None, None, None)
    assert str(finding) == f"NPU 3 reports health {word}; expected OK"
    assert (finding.values["npu"], finding.values["card"], finding.values["chip"]) == (3, 1, 1)


def test_a_code_is_named_with_its_text_and_what_it_demands() -> None:
    report = ChipHealth(1, 0, "Alarm", ("80E18402", "80E01801"), "hbm ecc")
    (finding,) = look(table(state(0), state(1, health="Alarm")), health(report), CHIPS, None)
    assert str(finding) == (
        "NPU 1 reports health Alarm, fault 80E18402 and 80E01801 (hbm ecc): take the NPU out of service and report it "
        "to the vendor; expected no fault"
    )


def test_a_chip_that_only_the_health_query_calls_ill() -> None:
    (finding,) = look(table(state(0), state(1)), health(ChipHealth(1, 0, "Critical")), CHIPS, None)
    assert str(finding) == "NPU 1 reports health Critical; expected OK"
    (finding,) = look(table(state(0)), health(ChipHealth(1, 0, "Critical")), CHIPS, None)
    assert finding.values["npu"] == 1


def test_a_warning_with_which_jobs_start_is_left_to_the_other_check() -> None:
    report = ChipHealth(1, 0, "Warning", ("80E20207",), "")
    assert look(table(state(0), state(1, health="Warning")), health(report), CHIPS, None) == []


def test_a_code_that_the_vendor_does_not_list_is_unknown_beside_a_warning() -> None:
    report = ChipHealth(1, 0, "Warning", ("80E01805", "12345678"), "")
    why = unknown(look, table(state(0), state(1, health="Warning")), health(report), CHIPS, None)
    assert str(why) == "NPU 1 reports health Warning, with codes that the vendor's list does not have: 12345678"


def test_a_code_that_takes_the_npu_out_of_service_counts_beside_the_word_ok() -> None:
    report = ChipHealth(1, 0, "OK", ("80E3A201",), "")
    (finding,) = look(table(state(0), state(1)), health(report), CHIPS, None)
    assert "health OK, fault 80E3A201 (no text): take the NPU out of service" in str(finding)


def test_a_card_that_the_table_leaves_out_does_not_answer() -> None:
    (finding,) = look(table(state(0)), health(), CHIPS, place())
    assert str(finding) == "npu-smi info leaves out NPU 1, which npu-smi info -m lists: the card does not answer"
    assert "NPU 1 is not in the table" in str(unknown(look, table(state(0)), None, CHIPS, place(engine="docker")))


def test_a_card_of_zeros_is_unknown_or_does_not_answer() -> None:
    zeros = table(state(0), unread={"NPU 1": NO_VALUES})
    assert look(zeros, health(), CHIPS, None) == []
    refused = health(ChipHealth(0, 0, "OK"), refused={1: "Failed to query health."})
    (finding,) = look(zeros, refused, CHIPS, None)
    assert str(finding) == "NPU card 1 does not answer npu-smi: Failed to query health.; expected health OK"
    assert "NPU card 1" in str(unknown(look, table(state(0), state(1)), refused, CHIPS, None))


ROWS_OF_NPU_0 = (
    "| 0 910B3 | OK | 97.1 50 0 / 0 |\n| 0 | 0000:C1:00.0 | 12 0 / 0 7752 / 65536 |",
    "| 1 910B3 | OK | 97.1 50 0 / 0 |\n| 0 | ?:00.0 | 12 |",
)
SILENT_TABLE = Output(code=1, err="dcmi get card list failed. ret is -8012")


@pytest.mark.parametrize(("word", "sick"), [("Alarm", ["NPU 1 reports health Alarm; expected OK"]), ("OK", [])])
@pytest.mark.parametrize("shown", [SILENT_TABLE, Output(out=hbm_table(*ROWS_OF_NPU_0))])
def test_a_table_that_fails_hides_no_chip_that_another_query_calls_ill(
    word: str, sick: list[str], shown: Output
) -> None:
    """The table as a whole, or a row of it."""
    facts = Facts({"w1": [health(ChipHealth(0, 0, "OK"), ChipHealth(1, 0, word)), CHIPS]})
    facts._facts["w1", NpuTable] = learned(NpuTable, {"": shown})
    outcome = evaluate_check(check("npu-unhealthy"), ("w1",), facts, {})
    assert ([str(finding) for finding in outcome.findings], set(outcome.unknown)) == (sick, {"w1"})
