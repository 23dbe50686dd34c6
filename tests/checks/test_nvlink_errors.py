"""What nvlink-errors makes of `nvidia-smi nvlink -e`.

Sources of the texts: a public thread on V100-SXM2 whose links fail, stas00/ml-engineering (an H100),
NVIDIA/srt-slurm pull request 307 (a GB300), and a public test of two RTX A6000 with a bridge. The counters of NVLink 5:
public file 71075276249, read off a p6-b300.48xlarge with driver 595.91.07, values of a healthy host.
"""

from __future__ import annotations

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.nvlink import NvLinkErrors
from tests.checks.run_check import messages, run_check
from tests.facts.answers import read_outputs

H100 = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-abcdefab-cdef-abdc-abcd-abababababab)\n"
V100 = "GPU 2: Tesla V100-SXM2-32GB-LS (UUID: GPU-d9eeee97-c180-66de-23e0-d995387934dc)\n"


def link(number: int, replay: object = 0, recovery: object = 0, crc: object = 0) -> str:
    values = {"Replay": replay, "Recovery": recovery, "CRC": crc}
    return "".join(f"         Link {number}: {kind} Errors: {value}\n" for kind, value in values.items()) + "\n"


def found(text: str) -> list[str]:
    return [
        text
        for _, text in messages(run_check("nvlink-errors", {"w1": [read_outputs(NvLinkErrors, one=Output(out=text))]}))
    ]


B300 = "GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-1)\n" + "".join(
    f"\t Link 0: {name}: {value}\n"
    for name, value in {
        "Tx packets": 81733,
        "Malformed packet Errors": 0,
        "Buffer overrun Errors": 0,
        "Rx Errors": 0,
        "Rx remote Errors": 0,
        "Rx General Errors": 0,
        "Local link integrity Errors": 0,
        "Tx discards": 0,
        "Link recovery successful events": 0,
        "Link recovery failed events": 0,
        "Total link recovery events": 0,
        "Effective Errors": 0,
        "Effective BER": "15e-255",
        "Symbol Errors": 0,
        "Symbol BER": "15e-255",
        "FEC Errors - 0": 36140749276,
        "FEC Errors - 1": 3,
        "Raw BER Lane 0": 2061,
        "Raw Errors Lane 0": 82,
    }.items()
)


@pytest.mark.parametrize(
    "text",
    [
        B300,
        H100 + link(0) + link(1) + link(17),
        H100.replace("H100 80GB HBM3", "GB300") + link(0).replace("         ", "\t "),
        "GPU 0: NVIDIA RTX A6000 (UUID: GPU-f3aa01f8)\n" + link(0) + link(3),
        V100 + link(0, replay=3) + link(1, crc=12),
        H100 + link(0, crc="N/A") + link(1),
    ],
)
def test_sound_links(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (V100 + link(0, replay=148, crc=65535) + link(1), "GPU 2 has NVLink errors on links 0"),
        (V100.replace("GPU 2", "GPU 0") + link(2) + link(3, replay=2353), "GPU 0 has NVLink errors on links 3"),
        (H100 + link(4, recovery=1), "links 4"),
        (H100 + link(0) + V100 + link(5, crc=100), "GPU 2 has NVLink errors on links 5"),
        (B300.replace("failed events: 0", "failed events: 1"), "Link recovery failed events"),
        (B300.replace("Effective Errors: 0", "Effective Errors: 7"), "Effective"),
        (H100 + "         Link 1: CRC Flit Errors: 4100\n", "links 1"),
    ],
)
def test_links_with_errors(text: str, says: str) -> None:
    (message,) = found(text)
    assert says in message


def test_a_count_that_failed_is_unknown_for_its_gpu() -> None:
    fact = read_outputs(NvLinkErrors, one=Output(out=H100 + link(0, crc="Unknown Error") + V100 + link(0)))
    assert list(fact.unread) == ["GPU 0"]
    assert run_check("nvlink-errors", {"w1": [fact]}).unknown


@pytest.mark.parametrize(
    "rows",
    [
        "\t Link 0: Lane mishaps: 3\n",
        link(1) + "\t Links 0, 2-5: No errors\n",  # as the author of public file 66821203712 joined rows
        link(1) + "\t Link 0: \x1b[31mReplay Errors: 18422\x1b[0m\n",
    ],
)
def test_rows_of_another_form_are_unknown(rows: str) -> None:
    """What a next generation counts is not taken for no counters, nor is a row that cannot be read left out."""
    fact = read_outputs(NvLinkErrors, one=Output(out=f"GPU 0: NVIDIA R100\n{rows}"))
    assert list(fact.unread) == ["GPU 0"] and run_check("nvlink-errors", {"w1": [fact]}).unknown


@pytest.mark.parametrize(
    "text", ["", H100, "GPU 0: NVIDIA A10 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information\n"]
)
def test_no_counters(text: str) -> None:
    assert isinstance(read_outputs(NvLinkErrors, one=Output(out=text)), Absent)


def test_a_link_without_its_gpu() -> None:
    assert isinstance(read_outputs(NvLinkErrors, one=Output(out=link(0, crc=9))), Unreadable)
