"""What rdma-module-out-of-range finds, of what mlxlink prints."""

from __future__ import annotations

import pytest

from tests.checks.run_check import messages, run_check
from tests.facts.test_rdma_modules import COPPER, DOWN, OSFP, QSFP28, modules


def texts_of(*texts: str) -> list[str]:
    return [text for _, text in messages(run_check("rdma-module-out-of-range", {"w1": [modules(*texts)]}))]


@pytest.mark.parametrize("text", [OSFP, COPPER, QSFP28, DOWN, OSFP.replace("\n", "\r\n")])
def test_healthy_ports_and_ports_that_are_down(text: str) -> None:
    """A copper cable at full speed has no light and no lock; the light of a port that is down is another check's."""
    assert texts_of(*[text] * 8) == []


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("54 [", "78 [", "the module of mlx5_1 has temperature: 78.0 C; expected -5.0 to 75.0 C"),
        ("2.281,", "-14.2,", "the module of mlx5_1 has Rx power 2: -14.2 dBm; expected -10.41 to 6.0 dBm"),
        ("1.562,1.427", "-40,-40", "the module of mlx5_1 has Tx power 0: -40.0, Tx power 1: -40.0 dBm"),
        ("3261.2", "2801.0", "the module of mlx5_1 has voltage: 2801.0 mV"),
        ("BER             : 15E-255", "BER             : 3E-9", "an effective bit error rate of 3e-09; expected 1e-12"),
        (
            "Opcode                      : 0",
            "Opcode                      : 15",
            "mlxlink says of the active port mlx5_1",
        ),
        ("(544,514)", "(272,257)", "mlx5_1 uses FEC Standard_RS-FEC - (272,257) at IB-NDR; 4 of 5 ports like it"),
    ],
)
def test_a_sick_port_among_sound_ones(old: str, new: str, text: str) -> None:
    sick = OSFP.replace(old, new).replace(
        *(("No issue was observed", "Bad signal integrity") if "Opcode" in old else ("", ""))
    )
    (message,) = texts_of(OSFP, sick, OSFP, OSFP, OSFP)
    assert text in message


@pytest.mark.parametrize("opcode", ["128", "1023"])
def test_a_tool_that_knows_nothing_yet_accuses_no_port(opcode: str) -> None:
    unsure = OSFP.replace("Opcode                      : 0", f"Opcode                      : {opcode}")
    assert texts_of(OSFP, unsure.replace("No issue was observed", "Info not available")) == []


def test_a_fleet_with_two_kinds_of_cables_has_two_kinds_of_fec() -> None:
    assert texts_of(OSFP, OSFP, OSFP, OSFP, OSFP, OSFP, COPPER) == []
    assert texts_of(OSFP, OSFP, OSFP.replace("(544,514)", "(272,257)"), OSFP.replace("(544,514)", "(272,257)")) == []


def test_one_host_with_many_ports_decides_nothing_about_others() -> None:
    """Each host counts once, however many adapters it says that it has."""
    liar = modules(*[OSFP.replace("(544,514)", "(272,257)")] * 40)
    fleet = {"w1": [modules(OSFP, OSFP)], "w2": [modules(OSFP, OSFP)], "w3": [modules(OSFP, OSFP)], "w4": [liar]}
    assert {host for host, _ in messages(run_check("rdma-module-out-of-range", fleet))} == {"w4"}
    assert messages(run_check("rdma-module-out-of-range", {"w1": fleet["w1"], "w4": [liar]})) == []
