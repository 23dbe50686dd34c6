"""Three values, for every tool: absent, read and failed."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Fact, Output
from doctor.facts.npu import NpuMemoryErrors
from doctor.facts.npu_counters import NpuFrequencies, NpuPcieErrors
from doctor.facts.npu_fabric import NpuHccs
from doctor.facts.npu_table import NpuTable
from doctor.facts.reported_value import value_state
from tests.facts.answers import read_outputs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "N/A",
        "[N/A]",
        "NA",
        "-",
        "Not Supported",
        "[Not Supported]",
        "None",
        "Not Available",
        None,
        "[Requested functionality has been deprecated]",
        "AMDSMI_STATUS_NOT_SUPPORTED",
        "null",
        "not active",
    ],
)
def test_a_device_without_such_a_value(text: str | None) -> None:
    assert value_state(text) == "absent"


@pytest.mark.parametrize(
    "text",
    [
        "Unknown Error",
        "[Unknown Error]",
        "ERR!",
        "[GPU requires reset]",
        "[GPU is lost]",
        "Timeout",
        "ERROR",
        "AMDSMI_STATUS_FILE_ERROR",
        'Failed to query "health" result.',
        "Insufficient Permissions",
        "Corrupted infoROM",
        "AMDSMI_STATUS_IO",
        "AMDSMI_STATUS_UNEXPECTED_DATA",
        "AMDSMI_STATUS_NO_PERM",
        "Driver Not Loaded",
        "No Data",
    ],
)
def test_a_value_that_could_not_be_read(text: str) -> None:
    assert value_state(text) == "failed"


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "81559 MiB",
        "OK",
        "Warning",
        "NOK",
        "GPU Reset",
        "Unknown",
        "Enabled",
        "Insufficient Resources now",
        "No",
        "In Progress",
        "Failed partition",
        "errors: 3",
        "Not Active now",
        "Not Started",
        "Error count 0",
    ],
)
def test_what_is_a_value(text: str) -> None:
    assert value_state(text) == "read"


def test_a_long_text_takes_no_time() -> None:
    assert value_state("query " + "x failed " * 100_000) in ("read", "failed")


def per_card(text: str) -> Output:
    return Output(out=f"-- 0 --\n{text}\n-- exit 0 --\n-- 1 --\n{text.replace('BAD', '0')}\n-- exit 0 --\n")


TABLE = """\
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 160.7       BAD               0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          61609/ 65536         |
+===========================+===============+====================================================+
"""
READERS = [
    (NpuPcieErrors, per_card("TX Error Count : 0\nRX Error Count : BAD"), "NPU card 0"),
    (
        NpuMemoryErrors,
        per_card("HBM Double Bit Error Count : 0\nHBM Double Bit Isolated Pages Count : BAD"),
        "NPU card 0",
    ),
    (NpuFrequencies, per_card("Aicore Freq(MHZ) : BAD"), "NPU card 0"),
    (NpuHccs, Output(out="-- 0 0 --\nhccs health status : OK\nhccs error count : [0 BAD 0]\n"), "NPU card 0 chip 0"),
    (NpuTable, Output(out=TABLE), "NPU 0"),
]


@pytest.mark.parametrize(("fact", "output", "part"), READERS, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.parametrize("printed", ["ERR!", "Unknown Error", "Timeout", "0x"])
def test_readers_of_npu_smi_keep_the_other_values(fact: type[Fact], output: Output, part: str, printed: str) -> None:
    """A count that failed is unread with its card, and never 0; the words stand in the place of real numbers."""
    value = read_outputs(fact, one=Output(out=output.out.replace("BAD", printed)))
    assert isinstance(value, Fact)
    assert printed.partition(" ")[0] in value.unread[part] or "not understood" in value.unread[part]


@pytest.mark.parametrize(("fact", "output", "part"), READERS, ids=lambda value: getattr(value, "__name__", ""))
def test_readers_of_npu_smi_take_none_for_none(fact: type[Fact], output: Output, part: str) -> None:
    value = read_outputs(fact, one=Output(out=output.out.replace("BAD", "NA")))
    assert isinstance(value, Fact)
    assert not value.unread or fact is NpuFrequencies
