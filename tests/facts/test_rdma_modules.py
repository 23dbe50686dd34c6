"""What mlxlink prints of modules and links, and what is judged of it.

Sources: OSFP optics, the comment of a parser in a public collector of link data (mlxlink -m, module T-F4GS-BV0);
passive copper at NDR, MFT 4.35.0, and QSFP28 copper, MFT 4.30.1, from notes of two public clusters; names and forms of
the counters, mlxlink_commander.cpp of github.com/Mellanox/mstflint (prepareBerInfo: coefficient, "E-", magnitude;
register_access_table.adb: coefficient * 10^-magnitude, so that 15E-255 is as good as 0).
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.rdma_modules import RdmaModules
from tests.checks.run_check import run_check
from tests.facts.answers import read_outputs

OSFP = """
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-NDR
Width                              : 4x
FEC                                : Standard_RS-FEC - (544,514)
Loopback Mode                      : No Loopback

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 14402.7
Symbol Errors                      : 0
Symbol BER                         : 15E-255
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical Errors Per Lane       : 3321,118,90,5112
Raw Physical BER                   : 4E-11
Link Down Counter                  : 0

Module Info
-----------
Temperature [C]                    : 54 [-5..75]
Voltage [mV]                       : 3261.2 [2970..3630]
Bias Current [mA]                  : 8.380,8.380,8.380,8.380 [2..15]
Rx Power Current [dBm]             : 1.886,1.989,2.281,1.976 [-10.41..6]
Tx Power Current [dBm]             : 1.562,1.427,1.559,1.761 [-8.508..5]
Identifier                         : OSFP
Cable Technology                   : 850 nm VCSEL
"""
COPPER = """
State                              : Active 
Speed                              : IB-NDR 
FEC                                : Ethernet_Consortium_LL_50G_RS_FEC_PLR -(272,257+1) 
Status Opcode                      : 0 
Recommendation                     : No issue was observed 
Temperature [C]                    : 0 [0..0]
Voltage [mV]                       : 0 [0..0]
Bias Current [mA]                  : 0,0,0,0 [0..0]
Rx Power Current [dBm]             : 0,0,0,0 [0..0]
Tx Power Current [dBm]             : 0,0,0,0 [0..0]
Cable Technology                   : Copper cable, passive, unequalized
Attenuation (5g,7g,12g,25g)[dB]    : 0,0,0,0
Rx LOS [per lane]                  : 1,0,1,1
Rx CDR LOL [per lane]              : 1,1,1,1
"""  # noqa: W291 -- as the tool prints it
QSFP28 = """
State                              : Active
Speed                              : 100G
FEC                                : Standard RS-FEC - RS(528,514)
Status Opcode                      : 0
Recommendation                     : No issue was observed
Temperature [C]                    : N/A
Voltage [mV]                       : N/A
Bias Current [mA]                  : N/A
Rx Power Current [dBm]             : N/A
Tx Power Current [dBm]             : N/A
Cable Technology                   : Copper cable, passive, unequalized
"""
BLUEFIELD = """
Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : 100G
Width                              : 4x
FEC                                : Standard RS-FEC - RS(528,514)
Loopback Mode                      : No Loopback
Auto Negotiation                   : ON

Supported Info
--------------
Enabled Link Speed (Ext.)          : 0x00000200 (100G_4X)
Supported Cable Speed (Ext.)       : 0x000002f2 (100G_4X,50G_2X,40G,25G,10G,1G)

Troubleshooting Info
--------------------
Status Opcode                      : 0
Group Opcode                       : N/A
Recommendation                     : No issue was observed

Tool Information
----------------
Firmware Version                   : 32.43.2402
amBER Version                      : 3.6
MFT Version                        : mft 4.30.1-8

Module Info
-----------
Temperature [C]                    : N/A
Voltage [mV]                       : N/A
Bias Current [mA]                  : N/A
Rx Power Current [dBm]             : N/A
Tx Power Current [dBm]             : N/A
Identifier                         : QSFP28
Compliance                         : 100GBASE-CR4, 25GBASE-CR CA-25G-L or 50GBASE-CR2 with RS (Clause91) FEC
Cable Technology                   : Copper cable, passive, unequalized
Attenuation (5g,7g,12g)[dB]        : 0,0,0
LOS Alarm                          : N/A
Nominal bit rate                   : 0.000Gb/s
Rx LOS [per lane]                  : N/A

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 25074.8
Effective Physical Errors          : 0
Effective Physical BER             : 15E-255
Raw Physical Errors Per Lane       : 0,0,0,0
Link Down Counter                  : 0
Link Error Recovery Counter        : 0
Raw Physical BER                   : 15E-255
"""
DOWN = (
    OSFP.replace(": Active", ": Polling")
    .replace("54 [-5", "0 [-5")
    .replace("1.886,1.989,2.281,1.976", "-40,-40,-40,-40")
)


def printed(*texts: str, code: int = 0) -> Output:
    return Output(out="".join(f"-- mlx5_{n} --\n{text}-- exit {code} --\n" for n, text in enumerate(texts)))


def modules(*texts: str) -> RdmaModules:
    fact = read_outputs(RdmaModules, one=printed(*texts))
    assert isinstance(fact, RdmaModules), fact
    return fact


def test_the_values_of_an_optical_module() -> None:
    module = modules(OSFP).by_device["mlx5_0"]
    assert (module.state, module.speed, module.effective_ber) == ("Active", "IB-NDR", 15e-255)
    rx = module.readings["Rx power 2"]
    assert (rx.value, rx.low, rx.high, rx.unit) == (2.281, -10.41, 6.0, "dBm")
    assert len(module.readings) == 14


def test_a_port_of_a_bluefield_with_a_copper_cable_is_healthy() -> None:
    """Public file 63417111421: BlueField-3, MFT 4.30.1; its cable measures nothing."""
    fact = modules(BLUEFIELD)
    module = fact.by_device["mlx5_0"]
    assert (module.state, module.speed, module.effective_ber) == ("Active", "100G", 15e-255)
    assert not module.readings and not fact.unread
    outcome: Any = run_check("rdma-module-out-of-range", {"w1": [fact]})
    assert not outcome.findings and not outcome.unknown


HDR100 = """
Operational Info
----------------
State                           : Active
Physical state                  : LinkUp
Speed                           : IB-HDR
Width                           : 2x
FEC                             : RS-FEC - (544,514) + PLR
Loopback Mode                   : No Loopback
Auto Negotiation                : ON

Troubleshooting Info
--------------------
Status Opcode                   : 0
Group Opcode                    : N/A
Recommendation                  : No issue was observed

Tool Information
----------------
Firmware Version                : 20.36.1010
amBER Version                   : 2.13
MFT Version                     : mft 4.24.0-72

Physical Counters and BER Info
Symbol Errors                   : 0
Symbol BER                      : 15E-255
Effective Physical Errors       : 0
Effective Physical BER          : 15E-255
Raw Physical Errors Per Lane    : {errors}
Raw Physical BER                : {rate}
Link Error Recovery Counter     : 0

Module Info
Identifier                      : QSFP28
"""
HDR100_PORTS = (
    ("3183333,242074", "1E-8"),
    ("2361678,219959", "9E-9"),
    ("10214417,628099", "3E-8"),
    ("32379149,224947", "1E-7"),
    ("5811465,2509001", "2E-8"),
    ("4014318,15682171", "6E-8"),
    ("1068084,136509", "4E-9"),
    ("5015610,1687775", "2E-8"),
)
"""Public file 60859828466: eight ConnectX-6 of a host with A100, MFT 4.24.0; a port there has two lanes."""


def test_errors_that_fec_corrects_are_usual_at_two_lanes_of_hdr() -> None:
    fact = modules(*(HDR100.format(errors=errors, rate=rate) for errors, rate in HDR100_PORTS))
    assert {module.state for module in fact.by_device.values()} == {"Active"} and len(fact.by_device) == 8
    outcome: Any = run_check("rdma-module-out-of-range", {"w1": [fact]})
    assert not outcome.findings and not outcome.unknown


@pytest.mark.parametrize(
    "text",
    [
        "-E- Failed to open device: mlx5_0, Permission denied\n",
        OSFP.replace("54 [-5..75]", "ERR"),
        OSFP.replace("Effective Physical BER             : 15E-255", "Effective Physical BER             : ?"),
        re.sub("(?m)^Status Opcode.*\n", "", OSFP),
        re.sub("(?m)^Recommendation.*\n", "", OSFP),
    ],
)
def test_what_cannot_be_read_is_unknown(text: str) -> None:
    output = printed(text, code=1 if text.startswith("-E-") else 0)
    assert isinstance(read_outputs(RdmaModules, one=output), Unreadable)
    both = read_outputs(RdmaModules, one=Output(out=printed(OSFP).out + output.out.replace("mlx5_0", "mlx5_1")))
    assert isinstance(both, RdmaModules) and list(both.unread) == ["mlx5_1"]
    outcome: Any = run_check("rdma-module-out-of-range", {"w1": [both]})
    assert not outcome.findings and "w1" in outcome.unknown


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("-- mlx5_0 --\n" + OSFP[:120], "mlxlink: its output was cut off"),
        ("-- mlx5_0 --\n-- exit 0 --\n", "mlxlink: its output was cut off"),
        ("-- mlx5_0 --\n-- exit 124 --\n", "mlxlink: no answer in 10 s"),
        ("-- mlx5_0 --\n" + OSFP[:120] + "\n-- exit 124 --\n", "mlxlink: no answer in 10 s"),
        ("-- mlx5_0 --\n-- exit 1 --\n", "mlxlink: exit status 1"),
        ("-- mlx5_0 --\n\n-E- No such device\n-- exit 5 --\n", "mlxlink: exit status 5: -E- No such device"),
    ],
)
def test_the_reason_says_what_ended(out: str, reason: str) -> None:
    why = read_outputs(RdmaModules, one=Output(out=out))
    assert isinstance(why, Unreadable) and str(why) == reason


def test_no_adapter() -> None:
    assert isinstance(read_outputs(RdmaModules, one=Output(out="")), Absent)


@pytest.mark.parametrize(
    ("rows", "is_read"),
    [
        ("State : Active\nStatus Opcode : 0\nRecommendation : No issue was observed\nIdentifier : QSFP56\n", True),
        ("State : Polling\nStatus Opcode : 2\nRecommendation : Check the cable\nIdentifier : N/A\n", True),
        ("State : N/A\nStatus Opcode : 0\nRecommendation : No issue was observed\nIdentifier : QSFP56\n", False),
        ("State : ERR!\nStatus Opcode : 0\nRecommendation : No issue was observed\nIdentifier : QSFP56\n", False),
        ("State : Active\nStatus Opcode : N/A\nRecommendation : N/A\nIdentifier : N/A\n", False),
    ],
)
def test_a_link_of_which_mlxlink_says_nothing_is_unread(rows: str, is_read: bool) -> None:
    value = read_outputs(RdmaModules, one=Output(out=f"-- mlx5_0 --\n{rows}-- exit 0 --\n"))
    assert isinstance(value, RdmaModules) == is_read
