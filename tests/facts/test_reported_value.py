"""Three values, for every tool: absent, read and failed."""

from __future__ import annotations

import json
import re

import pytest

from doctor.engine.fact import Fact, Output, Unreadable
from doctor.facts.ethernet_links import EthernetCounters
from doctor.facts.gpu import GpuInventory
from doctor.facts.hccn.link_state import LinkHistory
from doctor.facts.hccn.traffic import PortCounters
from doctor.facts.npu import NpuMemoryErrors
from doctor.facts.npu_counters import NpuFrequencies, NpuPcieErrors
from doctor.facts.npu_fabric import NpuHccs
from doctor.facts.npu_health import NpuHealth
from doctor.facts.npu_table import NpuTable
from doctor.facts.nvlink import NvLinks
from doctor.facts.rdma_modules import RdmaModules
from doctor.facts.reported_value import complaint, value_state
from doctor.facts.vendor_tests import DcgmDiagnosis
from tests.facts.answers import learned, read_outputs


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
    """Where no card has the value, the product has none; where the other card has one, it was not read."""
    alike = read_outputs(fact, one=Output(out=re.sub(r"\bBAD\b", "NA", output.out.partition("-- 1 --")[0])))
    assert fact is NpuFrequencies or not alike.unread
    if "-- 1 --" in output.out:
        assert part in read_outputs(fact, one=Output(out=output.out.replace("BAD", "NA"))).unread


NPU_ROWS = TABLE + "".join(
    line + "\n"
    for line in TABLE.replace("| 0     A", "| 1     A").replace("| 0     0  ", "| 0     1  ").splitlines()[3:]
)
GPU = (
    '<gpu id="00000000:0{0}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name><ecc_mode><current_ecc>{2}'
    "</current_ecc></ecc_mode><ecc_errors><volatile><dram_uncorrectable>{1}</dram_uncorrectable></volatile>"
    "</ecc_errors></gpu>"
)


def gpus(*errors: str, mode: str = "Enabled") -> Output:
    """A report of GPUs with these counts; the first one's mode of ECC is ``mode``."""
    parts = [GPU.format(number, text, "Enabled" if number else mode) for number, text in enumerate(errors)]
    return Output(out=f"<nvidia_smi_log>{''.join(parts)}</nvidia_smi_log>")


MODULE = (
    "-- mlx5_{0} --\nState : Active\nIdentifier : QSFP28\nCable Technology : 850 nm VCSEL\n"
    "Temperature [C] : {1}\nEffective Physical BER : 15E-255\nStatus Opcode : 0\n"
    "Recommendation : No issue was observed\n-- exit 0 --\n"
)
BESIDE = [
    # A device without a value that others of its product have, and how it is called; None: there is a reason for it.
    (NpuTable, Output(out=NPU_ROWS.replace("BAD", "NA", 1).replace("BAD", "45")), "NPU 0"),
    (NpuTable, Output(out=NPU_ROWS.replace("BAD", "-")), None),
    (RdmaModules, Output(out=MODULE.format(0, "54 [-5..75]") + MODULE.format(1, "N/A")), "mlx5_1"),
    (RdmaModules, Output(out=MODULE.format(0, "N/A") + MODULE.format(1, "N/A")), None),
    (
        RdmaModules,
        Output(out=MODULE.format(0, "54 [-5..75]") + MODULE.format(1, "N/A").replace("850 nm VCSEL", "Copper cable")),
        None,
    ),
]


@pytest.mark.parametrize(("fact", "output", "part"), BESIDE)
def test_a_value_that_others_of_the_product_have_is_unread(fact: type[Fact], output: Output, part: str | None) -> None:
    assert [*read_outputs(fact, one=output).unread] == ([part] if part else [])


def test_a_gpu_without_a_value_that_others_have_is_unknown_by_its_number() -> None:
    report = read_outputs(GpuInventory, one=gpus("N/A", "0", "0"))
    with pytest.raises(Unreadable, match=r"GPU 0 .*ecc_errors: no value"):
        report.require("ecc_errors")
    read_outputs(GpuInventory, one=gpus("N/A", "N/A")).require("ecc_errors")
    read_outputs(GpuInventory, one=gpus("N/A", "0", "0", mode="Disabled")).require("ecc_errors")


def test_a_test_of_dcgm_that_one_gpu_lacks_is_unknown() -> None:
    def diagnosis(*statuses: str) -> Output:
        results = [{"entity_group": "GPU", "entity_id": n, "status": status} for n, status in enumerate(statuses)]
        tests = {"category": "Deployment", "tests": [{"name": "memory", "results": results}]}
        return Output(out=json.dumps({"DCGM Diagnostic": {"test_categories": [tests]}}))

    assert [*read_outputs(DcgmDiagnosis, one=diagnosis("Pass", "Skip")).unread] == ["DCGM's test memory, GPU 1"]
    assert not read_outputs(DcgmDiagnosis, one=diagnosis("Skip", "Skip")).unread


ONE_NPU = "-- 0 --\n{0}-- exit 0 --\n"
STRANGE = [
    # What stands where a number or a word of the tool should stand: a newer form, or one of another language.
    (
        NvLinks,
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26562 MB/s down\n",
        "GPU 0",
    ),
    (
        EthernetCounters,
        "-- uptime --\n93842.11 7.1\n-- exit 0 --\n-- eth0 --\n     rx_crc_errors_phy: 1.3e7\n-- exit 0 --\n",
        "",
    ),
    (NpuHealth, ONE_NPU.format("\tHealth Status : OK\n\tError Code : code 80E18402h\n\tChip ID : 0\n"), "NPU card 0"),
    (NpuHealth, ONE_NPU.format("\tHealth Status : Alarm (2)\n\tError Code : NA\n\tChip ID : 0\n"), "NPU card 0"),
    (PortCounters, 2 * "packet statistics:\nroce_rx_err_pkt_num:0x1f\nroce_tx_err_pkt_num:0\n-- again --\n", ""),
    (
        LinkHistory,
        (
            "[devid 0]current time        : Tue Oct 28 21:46:46 2025\n[devid 0]link change records :\n"
            "[devid 0]    Sun Oct  5 10:13:51 2025    PORT RESET\n"
        ),
        "",
    ),
]


@pytest.mark.parametrize(("fact", "text", "device"), STRANGE, ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_tool_prints_in_a_form_that_is_not_known_is_unread(fact: type[Fact], text: str, device: str) -> None:
    value = learned(fact, {"0" if fact.probe.each and not fact.probe.repeats else "": Output(out=text)})
    assert isinstance(value, Unreadable) or value.unread, value
    assert isinstance(value, Unreadable) or not device or device in value.unread


def test_a_fault_code_is_read_with_its_prefix_too() -> None:
    text = ONE_NPU.format("\tHealth Status : OK\n\tError Code : 0x80E18402, 80E01801\n\tChip ID : 0\n")
    value = learned(NpuHealth, {"": Output(out=text)})
    assert value.chips[0].codes == ("80E18402", "80E01801") and not value.unread


def test_each_phrase_of_a_complaint_is_seen() -> None:
    phrases = ("ERROR", "Fatal", "fail", "Failed", "failure", "unable", "corrupt", "Corruption", "cannot", "Invalid")
    for phrase in (*phrases, "WARNING", "not responding", "timed out", "Connection refused"):
        assert complaint(f"MTU : 1500\nquery of device 1 {phrase} now") == f"query of device 1 {phrase} now"


def test_an_exception_that_a_tool_printed_is_a_complaint_and_a_counter_of_errors_is_none() -> None:
    raised = "amdsmi.amdsmi_exception.AmdSmiLibraryException: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"
    assert complaint(f"{raised}\n[]") == raised
    assert complaint("PermissionError: [Errno 13] Permission denied") != ""
    assert complaint("symbol_error: 0\nReplay Errors: 3\nfcs_error: 7\nLast Exception Count : 0") == ""
