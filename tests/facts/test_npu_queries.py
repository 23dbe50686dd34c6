"""Facts of npu-smi's queries for each card, of counters and of the 950 family's file: texts of sources, and noise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.facts.hccn.traffic import DevicePfc, DeviceTrafficClasses, PortCounters, PortGrowth
from doctor.facts.npu_counters import NpuCompatibility, NpuFrequencies, NpuPcieErrors, RunningClock
from doctor.facts.npu_fabric import NpuHccs, NpuTopology
from doctor.facts.npu_health import REMEDIES, NpuHealth, fault_levels, judge_health
from doctor.facts.root_info import HcclRootInfo, read_root_info
from tests.facts.answers import answered, learned, read_outputs
from tests.facts.garbage import runs_on_python_3_6


def cards(*texts: str, code: int = 0) -> Output:
    return Output(out="".join(f"-- {n} --\n{text}-- exit {code} --\n" for n, text in enumerate(texts)))


COMMON = "        Aicore Freq(MHZ)               : 1800\n        Aicore curFreq(MHZ)            : 800\n"


def test_the_rated_clock_is_not_that_of_an_idle_core() -> None:
    assert read_outputs(NpuFrequencies, one=cards(COMMON, COMMON.replace("1800", "1500"))).by_card == {0: 1800, 1: 1500}


def test_values_of_two_chips_are_not_mixed() -> None:
    """The first chip computes at a clock that it does not tell; the second is idle."""
    chip = "  Chip ID : {0}\n  Aicore Usage Rate(%) : {1}\n  Aicore Freq(MHZ) : 1800\n  Aicore curFreq(MHZ) : {2}\n"
    running = [
        read_outputs(NpuFrequencies, one=cards(chip.format(0, 95, first) + chip.format(1, 0, 800))).running
        for first in ("NA", 1800)
    ]
    assert running == [{}, {0: RunningClock(95, 1800, 1800)}]


def test_compatibility_of_a_board() -> None:
    board = "        Software Version               : 23.0.5\n        Compatibility                  : NOK\n"
    value = read_outputs(NpuCompatibility, one=cards(board))
    assert (value.by_card, value.firmware) == ({0: "NOK"}, {})
    assert isinstance(
        read_outputs(NpuCompatibility, one=cards("        Board ID                       : 0x02\n")), Unreadable
    )


def test_a_board_with_rows_that_a_newer_tool_has_behind_the_count_of_chips() -> None:
    board = "  Compatibility                  : OK\n  Chip Count                     : 1\n  Board Colour : 7\n"
    value = read_outputs(NpuCompatibility, one=cards(board, board))
    assert (value.by_card, value.unread) == ({0: "OK", 1: "OK"}, {})
    errors = "  Chip Count : 1\n  TX Error Count : 0\n"  # cut before the chip's id
    assert read_outputs(NpuPcieErrors, one=cards(errors)).unread


def test_pcie_errors_are_summed_over_the_chips() -> None:
    text = "        TX Error Count                 : 1\n        Retry Count                    : 9\n"
    value = read_outputs(NpuPcieErrors, one=cards(text + text))
    assert value.by_card == {0: {"TX Error Count": 2}}


@pytest.mark.parametrize("fact", [NpuPcieErrors, NpuFrequencies, NpuCompatibility, NpuHealth])
def test_a_query_that_the_product_does_not_have(fact: type[Fact]) -> None:
    assert type(read_outputs(fact, one=cards("This device does not support querying it.\n", code=217))) is Absent
    usage = "Error parameter of -c\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]\n"
    assert type(read_outputs(fact, one=cards(usage, usage, code=215))) is Absent
    assert (
        type(read_outputs(fact, one=cards("This command cannot be executed on a VM or container.\n", code=1))) is Absent
    )


TOPOLOGY = """\
           NPU0       NPU1       NPU2       CPU Affinity
NPU0       X          HCCS       SYS        144-167
NPU1       HCCS       X          HCCS       144-167
NPU2       SYS        HCCS       X          0-23

Legend:

  X    = Self
  SYS  = Path traversing PCIe and NUMA nodes. Nodes are connected through SMP, such as QPI, UPI.
"""


def test_the_relations_of_a_topology() -> None:
    assert read_outputs(NpuTopology, one=Output(out=TOPOLOGY)).relations == {"0-1": "HCCS", "0-2": "SYS", "1-2": "HCCS"}
    odd = read_outputs(NpuTopology, one=Output(out=TOPOLOGY.replace("NPU2       SYS", "NPU2       PIX")))
    assert odd.unread == {"npu-smi info -t topo": "0-2 is SYS, and 2-0 is PIX"}
    a3 = """\
          Phy-ID2    Phy-ID3    Phy-ID12
Phy-ID2    X          SIO        HCCS_SW
Phy-ID3    SIO        X          HCCS_SW
"""
    assert read_outputs(NpuTopology, one=Output(out=a3)).relations == {
        "2-3": "SIO",
        "2-12": "HCCS_SW",
        "3-12": "HCCS_SW",
    }
    refused = Output(code=1, out="This command cannot be executed on a VM or container.\n")
    assert type(read_outputs(NpuTopology, one=refused)) is Absent
    assert isinstance(read_outputs(NpuTopology, one=Output(out="Legend:\n")), Unreadable)


def test_hccs_of_each_chip() -> None:
    ok = "\thccs health status             : OK\n\thccs error count               : [0   2   0]\n"
    out = f"-- 0 0 --\n{ok}-- 0 1 --\n{ok.replace('OK', 'NOK')}-- 1 0 --\nFailed to query\n"
    value = read_outputs(NpuHccs, one=Output(out=out))
    assert value.health == {"0-0": "OK", "0-1": "NOK"}
    assert value.counts["hccs error count"] == {"0-0": (0, 2, 0), "0-1": (0, 2, 0)}
    assert list(value.unread) == ["NPU card 1 chip 0"]
    other = "-- 0 0 --\nThis device does not support querying hccs.\n"
    older = "-- 0 0 --\nError parameter of -c\nUsage: npu-smi info [Options...]\n-- exit 215 --\n"
    assert {type(read_outputs(NpuHccs, one=Output(out=out))) for out in (other, older)} == {Absent}


def test_hccs_of_a_chip_whose_query_ended_without_a_word() -> None:
    ok = "\thccs health status             : OK\n\thccs error count               : [0   2   0]\n-- exit 0 --\n"
    ends = {"-- exit 1 --\n": "exit status 1", "-- exit 124 --\n": "no answer in 5 s", "": "its output was cut off"}
    for end, why in ends.items():
        value = read_outputs(NpuHccs, one=Output(out=f"-- 0 0 --\n{ok}-- 1 0 --\n{end}"))
        assert value.unread == {"NPU card 1 chip 0": f"npu-smi: {why}"}


def test_hccs_of_a_310p_which_has_no_state() -> None:
    """print_npu_310P_hccs_lane_packet_info of npu_info_print_ext.c, github.com/hicann/driver."""
    counts = "\thccs tx packets                : [77   ]\n\thccs retry count               : [4   ]\n"
    counts += "\thccs error count               : [6   ]\n"
    out = "".join(f"-- 0 {chip} --\n{counts}-- exit 0 --\n" for chip in range(2))
    value = read_outputs(NpuHccs, one=Output(out=out))
    assert (value.health, value.unread) == ({}, {})
    assert value.counts == {
        "hccs error count": {"0-0": (6,), "0-1": (6,)},
        "hccs retry count": {"0-0": (4,), "0-1": (4,)},
    }


STAT = "packet statistics:\nmac_rx_pfc_pkt_num:4\nroce_rx_err_pkt_num:7\nroce_rx_all_pkt_num:122404\n"


def test_counters_between_two_reads() -> None:
    def grown(second: str) -> Any:
        return learned(PortCounters, {"0": Output(out=f"{STAT}-- again --\n{second}")})

    assert grown(STAT).by_npu == {0: PortGrowth({}, {})}
    assert grown(STAT.replace(":7", ":9").replace(":4", ":5").replace("122404", "9")).by_npu == {
        0: PortGrowth({"roce_rx_err_pkt_num": 2}, {"mac_rx_pfc_pkt_num": 1})
    }
    busy = grown(STAT.replace(":4", ":5").replace("122404", "122409"))
    assert busy.by_npu == {0: PortGrowth({}, {})}  # a pause under load is normal
    assert grown(STAT.replace(":7", ":0")).by_npu == {0: PortGrowth({}, {})}  # cleared in between
    assert isinstance(learned(PortCounters, {"0": Output(out=STAT)}), Unreadable)


def test_lossless_priorities() -> None:
    text = "PFC configuration:\npriority   0 1 2 3 4 5 6 7\nenabled    0 0 0 0 1 0 0 0\n"
    assert learned(DevicePfc, {"0": Output(out=text)}).by_npu == {0: "00001000"}
    assert isinstance(learned(DevicePfc, {"0": Output(out=text[:-4])}), Unreadable)


def test_traffic_classes() -> None:
    rows = "".join(f"{n:4d}{4 if n == 33 else 0:8d}\n" for n in range(64))
    assert learned(DeviceTrafficClasses, {"0": Output(out="dscp      tc\n" + rows)}).by_npu == {
        0: "0-32:0 33-33:4 34-63:0"
    }
    for text in ("dscp      tc\n" + rows[:-13], rows, "dscp      tc\n"):
        assert isinstance(learned(DeviceTrafficClasses, {"0": Output(out=text)}), Unreadable)


def test_the_file_of_the_950_family(tmp_path: Any) -> None:
    assert runs_on_python_3_6(read_root_info)
    assert type(answered(HcclRootInfo, {"there": False})) is Absent
    assert isinstance(answered(HcclRootInfo, {"there": True, "refused": "Permission denied"}), Unreadable)
    assert answered(HcclRootInfo, {"there": True, "not_json": "x"}).problem == "not JSON: x"
    assert read_root_info({})["there"] in (True, False)


def test_every_code_has_one_level_and_every_level_a_remedy() -> None:
    assert set(fault_levels().values()) == set(REMEDIES) - {"unlisted"}
    assert all(len(code) in (8, 9) and int(code, 16) for code in fault_levels())
    assert len(fault_levels()) == 802


@pytest.mark.parametrize(
    ("word", "codes", "verdict"),
    [
        ("OK", "", "healthy"),
        ("OK", "81B58004", "healthy"),  # NotHandle
        ("Warning", "81B58004", "healthy"),
        ("Warning", "80F7860C", "healthy"),
        ("Warning", "80E20207", "warning"),  # SubHealth
        ("OK", "80C98000", "warning"),  # RestartRequest
        ("Warning", "8C204E00", "warning"),  # RestartBusiness
        ("Warning", "81B38004", "error"),  # RestartNPU
        ("Warning", "81B38009", "error"),
        ("OK", "80E3A201", "error"),  # SeparateNPU
        ("OK", "8F180200", "error"),
        ("Warning", "80E20207 80E3A201", "error"),
        ("Warning", "12345678", "unknown"),
        ("OK", "12345678", "unknown"),
        ("OK", "81B58004 12345678", "unknown"),
        ("Warning", "80E3A201 12345678", "error"),
        ("Alarm", "12345678", "error"),
        ("Alarm", "81B58004", "error"),  # the driver's own word is more than a warning
        ("Alarm", "", "error"),
        ("Critical", "", "error"),
        ("UNKNOWN", "", "error"),
        ("Warning", "", "error"),
        ("Warning", "200001002", "healthy"),
        ("Warning", "a2301001", "error"),  # in two levels: the worse counts
    ],
)
def test_word_and_codes_are_judged_together(word: str, codes: str, verdict: str) -> None:
    assert judge_health(word, tuple(codes.split())) == verdict


def test_a_code_of_every_level_set_aside_stops_jobs() -> None:
    stopping = [code for code, level in fault_levels().items() if level == "aside"]
    assert len(stopping) == 200
    assert {judge_health("OK", (code,)) for code in stopping} == {"error"}


@given(st.text(max_size=200), st.sampled_from([0, 1, 124, 217]))
@pytest.mark.parametrize("fact", [NpuPcieErrors, NpuFrequencies, NpuCompatibility, NpuHealth, NpuHccs, NpuTopology])
def test_noise_is_never_a_value(fact: type[Fact], noise: str, code: int) -> None:
    assert isinstance(read_outputs(fact, one=Output(out=noise, code=code)), Absent)
    value = read_outputs(fact, one=Output(out=f"-- 0 --\n{noise}\n-- exit {code} --\n"))
    assert isinstance(value, Absent) or fact in (NpuHealth, NpuCompatibility)


def test_a_card_whose_compatibility_is_not_stated_beside_others_is_unread() -> None:
    board = "        Software Version               : 23.0.5\n        Compatibility                  : {0}\n"
    blocks = "".join(f"-- {card} --\n{board.format('N/A' if card == 1 else 'OK')}-- exit 0 --\n" for card in range(3))
    value = read_outputs(NpuCompatibility, one=Output(out=blocks))
    assert (value.by_card, list(value.unread)) == ({0: "OK", 2: "OK"}, ["NPU card 1"])
