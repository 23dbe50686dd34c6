"""What ethtool -m and -S print of cards, modules and counters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.ethernet_links import _COUNTERS, _MODULES, EthernetCounters, EthernetModules, judged
from tests.facts import ethernet_transcripts as printed
from tests.facts.answers import read_outputs
from tests.facts.garbage import ANYTHING, value_of

MONTH = 30 * 86400
CAPTIONS = [printed.AVAGO, printed.ARISTA, printed.TRANSITION, printed.INTEL_SR, printed.COPPER_RJ45, printed.PASSIVE]


def modules_answer(*texts: str, code: int = 0, adapter: str = "") -> Output:
    return Output(out="".join(f"-- eth{n}{adapter} --\n{text}-- exit {code} --\n" for n, text in enumerate(texts)))


def modules(*texts: str, adapter: str = "") -> EthernetModules:
    fact = read_outputs(EthernetModules, one=modules_answer(*texts, adapter=adapter))
    assert isinstance(fact, EthernetModules), fact
    return fact


def counters(*texts: str, uptime: float = MONTH, adapter: str = "") -> EthernetCounters:
    blocks = "".join(f"-- eth{n}{adapter} --\n{text}-- exit 0 --\n" for n, text in enumerate(texts))
    out = f"-- uptime --\n{uptime} 71.5\n-- exit 0 --\n{blocks}"
    fact = read_outputs(EthernetCounters, one=Output(out=out))
    assert isinstance(fact, EthernetCounters), fact
    return fact


def test_the_values_of_a_module_of_four_lanes() -> None:
    module = modules(printed.AVAGO).by_interface["eth0"]
    assert sorted(module.alarms) == ["Rx power 1", "Tx power 1", "bias current 1", "temperature", "voltage"]
    rx = module.alarms["Rx power 1"]
    assert (rx.value, rx.low, rx.high, rx.unit) == (-1.15, -13.51, 3.4, "dBm")
    assert (module.warnings["temperature"].high, module.alarms["temperature"].high) == (70.0, 75.0)


def test_a_module_of_cmis_and_one_of_a_single_lane() -> None:
    cmis, single = modules(printed.ARISTA, printed.TRANSITION).by_interface.values()
    assert cmis.alarms["bias current 4"].value == 110.1 and "Rx power 5" not in cmis.alarms
    assert single.alarms["Rx power"].value == -40.0


@pytest.mark.parametrize("text", [printed.COPPER_RJ45, printed.PASSIVE])
def test_copper_measures_nothing(text: str) -> None:
    assert modules(text).by_interface["eth0"].alarms == {}


@pytest.mark.parametrize("text", printed.WITHOUT_MODULE)
def test_a_card_without_a_module_is_absent_and_not_unread(text: str) -> None:
    alone = read_outputs(EthernetModules, one=modules_answer(text, code=1))
    assert isinstance(alone, Absent) and not isinstance(alone, Unreadable)
    both = Output(out=modules_answer(printed.AVAGO).out + f"-- eno1 --\n{text}-- exit 1 --\n")
    fact = read_outputs(EthernetModules, one=both)
    assert list(fact.by_interface) == ["eth0"] and not fact.unread


@pytest.mark.parametrize(("text", "code"), printed.FAILURES)
def test_a_module_that_cannot_be_read_is_unread(text: str, code: int) -> None:
    both = Output(out=modules_answer(printed.AVAGO).out + f"-- ens2 --\n{text}-- exit {code} --\n")
    fact = read_outputs(EthernetModules, one=both)
    assert list(fact.by_interface) == ["eth0"] and "ens2" in fact.unread


def test_in_a_virtual_machine_a_module_that_does_not_answer_is_its_hosts() -> None:
    silent = f"-- eth0 --\n{printed.FAILURES[0][0]}-- exit 1 --\n"
    assert isinstance(read_outputs(EthernetModules, one=Output(out=silent)), Unreadable)
    virtual = "-- virtual --\n-- exit 0 --\n"
    assert type(read_outputs(EthernetModules, one=Output(out=virtual + silent))) is Absent
    assert type(read_outputs(EthernetModules, one=Output(out=virtual))) is Absent
    both = read_outputs(EthernetModules, one=Output(out=virtual + modules_answer(printed.AVAGO).out))
    assert list(both.by_interface) == ["eth0"]
    half = f"{virtual}-- eth0 --\n{printed.FAILURES[2][0]}-- exit 1 --\n"
    assert isinstance(read_outputs(EthernetModules, one=Output(out=half)), Unreadable)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (printed.ALL_ONES, "ethtool -m: the module's memory cannot be read: identifier 0xff (reserved or unknown)"),
        (printed.ALL_ZEROS, "ethtool -m: the module's values cannot be right: 0.0 V"),
        (printed.CONTRADICTING, "ethtool -m: the module's values cannot be right: Module temperature 7.06 > 3.02"),
        (
            printed.AVAGO.replace("42.17 degrees C", "ERR"),
            "Module temperature: expected a value with its unit, found ERR",
        ),
        ("", "ethtool -m: the module's memory cannot be read: identifier "),
    ],
)
def test_what_no_module_says(text: str, reason: str) -> None:
    why = read_outputs(EthernetModules, one=modules_answer(text))
    assert isinstance(why, Unreadable) and str(why).startswith(reason)


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("-- eth0 --\nnetlink error: Operation not permitted\n-- exit 1 --\n", "only root may read"),
        ("-- eth0 --\n\tIdentifier                                : 0x03", "ethtool -m: its output was cut off"),
        ("-- eth0 --\n-- exit 124 --\n", "ethtool -m: no answer in 10 s"),
        ("-- eth0 --\nsh: ethtool: Killed\n-- exit 137 --\n", "ethtool -m: exit status 137: sh: ethtool: Killed"),
    ],
)
def test_the_reason_says_what_ended(out: str, reason: str) -> None:
    why = read_outputs(EthernetModules, one=Output(out=out))
    assert isinstance(why, Unreadable) and str(why).startswith(reason)


def test_no_card() -> None:
    assert isinstance(read_outputs(EthernetModules, one=Output(out="")), Absent)
    none = read_outputs(EthernetCounters, one=Output(out="-- uptime --\n7.1 3.0\n-- exit 0 --\n"))
    assert isinstance(none, Absent) and not isinstance(none, Unreadable)


def test_counters_that_are_judged_stay_and_others_do_not() -> None:
    fact = counters(printed.MLX5_SMALL, printed.I40E_HEALTHY, printed.R8169, printed.VIRTIO)
    assert fact.by_interface["eth0"]["rx_crc_errors_phy"] == 386 and fact.uptime == MONTH
    assert "rx_corrected_bits_phy" not in fact.by_interface["eth0"]
    judged_ones = [{name for name in names if judged(name)} for names in fact.by_interface.values()]
    assert judged_ones[1:] == [{"rx_crc_errors.nic"}, {"align_errors"}, set()]


def test_cards_without_statistics_and_cards_that_fail() -> None:
    out = "-- uptime --\n7.1 3\n-- exit 0 --\n-- eth0 --\nno stats available\n-- exit 94 --\n"
    assert type(read_outputs(EthernetCounters, one=Output(out=out))) is Absent
    out += "-- eth1 --\nCannot get stats information: Input/output error\n-- exit 75 --\n"
    why = read_outputs(EthernetCounters, one=Output(out=out))
    assert isinstance(why, Unreadable) and "Input/output error" in str(why)


def test_each_counter_has_one_rule() -> None:
    rules = [judged(name) for name in ("rx_prio3_discards", "port.rx_crc_errors", "mac_rx_fcs_err_pkt_num", "rx_bytes")]
    assert [rule and rule.least for rule in rules] == [1000, 10, 10, None]


@given(ANYTHING)
def test_arbitrary_answers(text: str) -> None:
    value_of(EthernetModules, text)
    value_of(EthernetCounters, text)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Cards in a copy of /sys/class/net, and an ethtool that prints what lies in a folder."""
    for name, carrier, speed, extra in (
        ("ens1f0", "1", "100000", "infiniband/mlx5_0"),
        ("ens1f1", "0", "100000", "."),
        ("eno1", "1", "1000", "."),
        ("vf0", "1", "25000", "physfn"),
    ):
        card = tmp_path / "sys/class/net" / name
        (card / "device" / extra).mkdir(parents=True)
        (card / "carrier").write_text(carrier + "\n")
        (card / "speed").write_text(speed + "\n")
    (tmp_path / "sys/class/net/lo").mkdir()
    (tmp_path / "m").write_text(printed.AVAGO)
    (tmp_path / "S").write_text(printed.MLX5_SMALL)
    tool = tmp_path / "bin/ethtool"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\ncat "{tmp_path}/${{1#-}}"\n')
    tool.chmod(0o755)
    return tmp_path


def test_the_scripts_on_a_host(host: Path) -> None:
    """Cards with a link only; modules of fast ones; no virtual function."""
    answers = []
    for script in (_MODULES, _COUNTERS):
        text = script.replace("/sys/class/net", f"{host}/sys/class/net")
        path = f"{host}/bin:{os.environ['PATH']}"
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, env={"PATH": path}, check=True)
        answers.append(Output(out=done.stdout))
    read = read_outputs(EthernetModules, one=answers[0])
    assert list(read.by_interface) == ["ens1f0"] and read.by_interface["ens1f0"].adapter == "mlx5_0"
    counted = read_outputs(EthernetCounters, one=answers[1])
    assert list(counted.by_interface) == ["eno1", "ens1f0"] and counted.adapters == {"ens1f0": "mlx5_0"}
    assert counted.by_interface["eno1"]["rx_crc_errors_phy"] == 386 and counted.uptime > 0
    assert "rx_packets_phy" in answers[1].out and "rx_corrected_bits_phy" not in answers[1].out


def test_counters_that_were_cut_within_a_card() -> None:
    text = "-- uptime --\n93842.11 712633.10\n-- exit 0 --\n-- eth0 --\n     rx_crc_errors: 0\n{0}-- exit 0 --\n"
    full, cut = (read_outputs(EthernetCounters, one=Output(out=text.format(f"     counters: {n}\n"))) for n in (1, 2))
    assert full.by_interface == {"eth0": {"rx_crc_errors": 0}} and full.unread == {}
    assert isinstance(cut, Unreadable)
    empty = text.format("").replace("     rx_crc_errors: 0\n", "")
    assert isinstance(read_outputs(EthernetCounters, one=Output(out=empty)), Unreadable)
