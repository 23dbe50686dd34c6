"""What network-module-out-of-range finds, of what ethtool -m prints."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output
from doctor.facts.ethernet_links import EthernetModules
from tests.checks.run_check import messages, run_check
from tests.facts import ethernet_transcripts as printed
from tests.facts.answers import read_outputs
from tests.facts.test_ethernet_links import modules, modules_answer
from tests.facts.test_rdma_modules import OSFP
from tests.facts.test_rdma_modules import modules as mlxlink

NAME = "network-module-out-of-range"
COOL = printed.ARISTA.replace("70.49 degrees C / 158.89", "61.20 degrees C / 142.16")


def texts_of(*texts: str) -> list[str]:
    return [text for _, text in messages(run_check(NAME, {"w1": [modules(*texts)]}))]


@pytest.mark.parametrize(
    "text", [printed.AVAGO, COOL, printed.INTEL_SR, printed.COPPER_RJ45, printed.PASSIVE, printed.OEM_T8]
)
def test_healthy_modules(text: str) -> None:
    """Lanes that the card does not drive are dark, and so are their readings."""
    assert texts_of(text, text.replace("\n", "\r\n")) == []


def test_real_sick_modules() -> None:
    assert texts_of(printed.TRANSITION) == [
        "the module of eth0 has Rx power: -40.0 dBm; its own alarm limits are -13.1 and 1.0 dBm"
    ]
    assert texts_of(printed.ARISTA) == [
        "the module of eth0 has temperature: 70.49 C; its own warning limits are 0.0 and 70.0 C"
    ]


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("42.17 degrees C", "78.02 degrees C", "temperature: 78.02 C; its own alarm limits are -5.0 and 75.0 C"),
        ("3.2917 V", "2.8010 V", "voltage: 2.801 V; its own alarm limits are 2.97 and 3.63 V"),
        ("6.662 mA", "10.812 mA", "bias current 1: 10.812 mA; its own alarm limits are 0.5 and 10.0 mA"),
        ("0.7682 mW / -1.15 dBm", "0.0912 mW / -10.40 dBm", "Rx power 1: -10.4 dBm; its own warning limits are -9.5"),
    ],
)
def test_a_sick_module_among_sound_ones(old: str, new: str, text: str) -> None:
    (message,) = texts_of(printed.AVAGO, printed.AVAGO.replace(old, new), printed.COPPER_RJ45)
    assert message.startswith(f"the module of eth1 has {text}")


def test_an_alarm_that_an_earlier_fault_left_accuses_no_module() -> None:
    assert texts_of(printed.AVAGO.replace("Laser rx power low alarm    (Channel 2)     : Off", "x")) == []
    latched = (
        printed.AVAGO
        + "\tLaser rx power low alarm    (Channel 1)   : On\n\tModule temperature high alarm             : On\n"
    )
    assert texts_of(latched) == []


def test_the_same_module_is_judged_once() -> None:
    hot = printed.AVAGO.replace("42.17 degrees C", "78.02 degrees C")
    both = {"w1": [modules(hot, adapter=" mlx5_0"), mlxlink(OSFP)]}
    assert messages(run_check(NAME, both)) == []
    other = {"w1": [modules(hot, adapter=" bnxt_re0"), mlxlink(OSFP)]}
    assert len(messages(run_check(NAME, other))) == 1


@pytest.mark.parametrize(
    "text", [printed.ALL_ONES, printed.CUMULUS_ONES, printed.ALL_ZEROS, printed.CONTRADICTING, *dict(printed.FAILURES)]
)
def test_what_cannot_be_read_is_unknown_and_not_healthy(text: str) -> None:
    sound = modules_answer(printed.AVAGO).out
    answer = Output(out=f"{sound}-- ens2 --\n{text}-- exit {int(text in dict(printed.FAILURES))} --\n")
    outcome = run_check(NAME, {"w1": [read_outputs(EthernetModules, one=answer)]})
    assert not outcome.findings and "w1" in outcome.unknown


@pytest.mark.parametrize("text", [printed.DELL_DARK, printed.WEAK_LASER])
def test_a_laser_that_is_off_or_weak(text: str) -> None:
    """The one lane of a card with a link: its laser has no current, or too little, and no light comes in."""
    findings = " ".join(texts_of(text))
    assert all(quantity in findings for quantity in ("bias current", "Tx power", "Rx power")) and "eth0" in findings


def test_a_module_into_which_no_light_comes() -> None:
    (text,) = texts_of(printed.OEM_DARK)
    assert "eth0" in text and "Rx power" in text


FEC = "Speed : 100000\nActive FEC encoding: {0}\n"
SHORT = printed.INTEL_SR + "\tTransceiver type                          : 100G Base-SR4\n"


def test_another_fec_than_that_of_the_other_ports_with_such_a_cable() -> None:
    """IEEE 802.3: 100GBASE-LR4 has no FEC, SR4 and CR4 have RS."""
    sound = [modules(FEC.format("RS") + SHORT)]
    others = {f"w{n}": sound for n in range(1, 4)}
    off = FEC.format("Off") + SHORT
    assert messages(run_check(NAME, {**others, "w4": [modules(off)]})) == [
        ("w4", "eth0 uses FEC Off at 100000 Mbit/s; 3 of 4 ports like it use RS")
    ]
    assert messages(run_check(NAME, {**others, "w4": [modules(off.replace("Base-SR4", "Base-LR4"))]})) == []
    assert messages(run_check(NAME, {"w1": sound, "w2": [modules(off)]})) == []
    unnamed = {f"w{n}": [modules(FEC.format("RS" if n else "Off") + COOL)] for n in range(4)}
    assert messages(run_check(NAME, unnamed)) == []
