"""What npu-smi prints on each family, and what is made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import NO_ANSWER, Absent, Fact, Output, Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.hccn.link_state import DeviceMtu
from doctor.facts.npu import (
    Chip,
    MemoryErrors,
    NpuChips,
    NpuInventory,
    NpuMemoryErrors,
    NpuProduct,
    NpuStart,
    family_of_chip,
)
from doctor.facts.npu_counters import NpuPcieErrors
from doctor.facts.npu_fabric import NpuHccs
from doctor.facts.npu_table import NpuProcess, NpuState, NpuTable
from tests.facts.answers import answered, learned, read_outputs

HEAD = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.rc2                 Version: 23.0.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
"""
PROCESSES = """\
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
"""
RULE = "+===========================+===============+====================================================+\n"
FREE = "| No running processes found in NPU 0                                                            |\n"
A2_ROW = """\
| 0     910B1               | OK            | 88.4        46                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          4175 / 65536         |
"""
A2 = HEAD + A2_ROW + RULE + PROCESSES + FREE + RULE
A1 = (
    HEAD
    + """\
| 0     910B                | OK            | 70.0        34                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           1197 / 13553      1365 / 32768         |
"""
    + RULE
    + PROCESSES
    + FREE
    + RULE
)
A3 = (
    HEAD.replace("| Chip                      |", "| Chip  Phy-ID              |")
    + """\
| 0     Ascend910           | OK            | 160.7       45                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          61609/ 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | Warning       | -           45                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2886 / 65536         |
"""
    + RULE
    + """\
| 1     Ascend910           | OK            | 167.2       44                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3089 / 65536         |
"""
    + RULE
    + PROCESSES
    + "| 0       1                 | 4242          | python3.10               | 58601                   |\n"
    + RULE
    + FREE.replace("NPU 0", "NPU 1")
    + RULE
)
M_A1 = """\
	NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
	0                              0                              0                              Ascend 910A
"""
M_A2 = """\
	NPU ID                         Chip ID                        Chip Logic ID                  Chip Name
        0                              0                              0                              Ascend 910B4
        0                              1                              -                              Mcu
        1                              0                              1                              Ascend 910B4
        1                              1                              -                              Mcu
"""
M_A3 = """\
        NPU ID                         Chip ID                        Chip Logic ID                  Chip Phy-ID                    Chip Name
        0                              0                              0                              0                              Ascend910
        0                              1                              1                              1                              Ascend910
"""  # noqa: E501
DOWN = "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n"
NOTHING: dict[str, Any] = {"pci": {}, "files": [], "refused": [], "tools": [], "chips": None, "newer": []}


def test_the_table_of_a2() -> None:
    table = read_outputs(NpuTable, one=Output(out=A2))
    assert table == NpuTable(
        npus=(NpuState(0, 0, 0, "910B1", "OK", "0000:C1:00.0", 4175, 65536, 46),),
        processes=(),
        incomplete_install=False,
    )


def test_the_table_of_a1_has_its_hbm_last() -> None:
    (npu,) = read_outputs(NpuTable, one=Output(out=A1)).npus
    assert (npu.name, npu.hbm_used, npu.hbm_total) == ("910B", 1365, 32768)


def test_the_table_of_a3_has_two_devices_a_card() -> None:
    table = read_outputs(NpuTable, one=Output(out=A3))
    assert [(npu.npu, npu.chip, npu.device) for npu in table.npus] == [(0, 0, 0), (0, 1, 1), (1, 0, 2)]
    assert [npu.health for npu in table.npus] == ["OK", "Warning", "OK"]
    assert table.npus[0].hbm_used == 61609
    assert table.processes == (NpuProcess(0, 1, 4242, "python3.10", 58601),)
    assert table.device_of(table.processes[0]) == 1


def test_the_warning_of_an_incomplete_installation_is_kept() -> None:
    warning = "[WARNING]The driver package may not be completely installed, which may cause function abnormal. "
    assert read_outputs(NpuTable, one=Output(out=A2 + warning + "Please reinstall it.\n")).incomplete_install


def test_a_row_that_is_not_understood_is_unread_and_the_others_stay() -> None:
    broken = A3.replace("| 1     1                   | 0000:9F:00.0", "| ?     1                   | 0000:9F:00.0")
    table = read_outputs(NpuTable, one=Output(out=broken))
    assert [npu.device for npu in table.npus] == [0, 2]
    assert list(table.unread) == ["NPU 0"]


def test_a_process_that_is_not_understood_leaves_health_and_memory() -> None:
    table = read_outputs(NpuTable, one=Output(out=A3.replace("| 4242 ", "| 42?2 ")))
    assert table.unread == {} and len(table.npus) == 3
    assert table.process_problem == "a process is not understood: 0 1 | 42?2 | python3.10 | 58601"


@pytest.mark.parametrize("length", range(0, len(A3) - len(RULE) - len(FREE), 97))
def test_a_table_that_broke_off_is_never_a_whole_one(length: int) -> None:
    table = read_outputs(NpuTable, one=Output(out=A3[:length]))
    assert isinstance(table, Unreadable) or table.unread or table.process_problem


@pytest.mark.parametrize("fact", [NpuTable, NpuChips])
@pytest.mark.parametrize("code", [0, 187])
def test_npu_smi_that_does_not_start_is_unreadable_whatever_its_exit_status(fact: type[Fact], code: int) -> None:
    assert read_outputs(fact, one=Output(code=code, out=DOWN)) == Unreadable(
        "npu-smi does not start: dcmi module initialize failed. ret is -8005"
    )
    assert read_outputs(fact, one=Output(code=code, out=DOWN)).root_cause == "npu-driver-not-loaded"


@pytest.mark.parametrize("fact", [NpuTable, NpuChips, NpuStart])
def test_without_npu_smi_there_is_nothing(fact: type[Fact]) -> None:
    output = Output(ended="absent", err="npu-smi is not installed")
    assert read_outputs(fact, one=output) == Absent("npu-smi is not installed")
    assert isinstance(read_outputs(fact, one=Output(ended="timeout", seconds=20)), Unreadable)
    assert isinstance(
        read_outputs(fact, one=Output(code=1, out="Failed to execute npu-smi info. ret is 1.\n")), Unreadable
    )


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (DOWN, "driver", "dcmi module initialize failed. ret is -8005"),
        (
            "dcmi model initialized failed, because the device is used. ret is -8020\n",
            "busy",
            "dcmi model initialized failed, because the device is used. ret is -8020",
        ),
        (
            "npu-smi: error while loading shared libraries: libdcmi.so: cannot open shared object file\n",
            "library",
            "npu-smi: error while loading shared libraries: libdcmi.so: cannot open shared object file",
        ),
    ],
)
def test_how_npu_smi_fails_to_start(text: str, kind: str, message: str) -> None:
    failure = read_outputs(NpuStart, one=Output(code=1, err=text)).failure
    assert (failure.kind, failure.message) == (kind, message)


def test_npu_smi_that_starts() -> None:
    text = "        Total Count                    : 8\n\n        NPU ID                         : 0\n"
    assert read_outputs(NpuStart, one=Output(out=text)) == NpuStart(failure=None, cards=8)
    none = "There is no NPU card on this server.\n"
    assert read_outputs(NpuStart, one=Output(out=none)) == NpuStart(failure=None, cards=0)


def test_npu_smi_that_knows_no_npu() -> None:
    assert read_outputs(NpuChips, one=Output(out=M_A2.splitlines()[0])).chips == ()
    assert isinstance(read_outputs(NpuTable, one=Output(out=HEAD + RULE + PROCESSES + RULE)), Unreadable)
    answer = {**NOTHING, "tools": ["npu-smi"], "chips": {"out": M_A2.splitlines()[0], "code": 0}}
    assert isinstance(answered(NpuProduct, answer), Unreadable)


def test_the_chips_of_each_family() -> None:
    assert read_outputs(NpuChips, one=Output(out=M_A1)).chips == (Chip(0, 0, 0, "Ascend 910A", logic=0),)
    assert read_outputs(NpuChips, one=Output(out=M_A2)).chips == (
        Chip(0, 0, 0, "Ascend 910B4", logic=0),
        Chip(1, 0, 1, "Ascend 910B4", logic=1),
    )
    assert read_outputs(NpuChips, one=Output(out=M_A3)).chips == (
        Chip(0, 0, 0, "Ascend910", True, 0),
        Chip(0, 1, 1, "Ascend910", True, 1),
    )


@pytest.mark.parametrize("text", ["", "NPU\n", M_A2.replace("Ascend 910B4", "")])
def test_a_list_of_chips_that_is_not_understood(text: str) -> None:
    assert isinstance(read_outputs(NpuChips, one=Output(out=text)), Unreadable)


def test_a_row_of_the_list_that_is_not_understood_leaves_the_others() -> None:
    chips = read_outputs(NpuChips, one=Output(out=M_A2 + "\t7   0\n"))
    assert [chip.npu for chip in chips.chips] == [0, 1] and len(chips.unread) == 1


@pytest.mark.parametrize(
    ("name", "phy", "family"),
    [
        ("Ascend 910A", False, "A1"),
        ("910B", False, "A1"),
        ("Ascend 910ProB", False, "A1"),
        ("Ascend 910PremiumA", False, "A1"),
        ("910B1", False, "A2"),
        ("Ascend 910B4-1", False, "A2"),
        ("910B2C", False, "A2"),
        ("Ascend910", True, "A3"),
        ("Ascend910", False, None),
        ("Ascend950PR", True, "A5"),
        ("310P3", False, "inference"),
        ("H200", False, None),
    ],
)
def test_the_family_of_a_chip_name(name: str, phy: bool, family: str | None) -> None:
    assert family_of_chip(name, phy) == family


@pytest.mark.parametrize(("name", "family"), [("d801", "A1"), ("d802", "A2"), ("d803", "A3"), ("d806", "A5")])
def test_the_family_comes_from_the_pci_id(name: str, family: str) -> None:
    product = answered(NpuProduct, {**NOTHING, "pci": {"0000:c1:00.0": name, "0000:c2:00.0": name}})
    assert product == NpuProduct(family=family, evidence=f"PCI id 19e5:{name}")


def test_without_a_pci_bus_the_chip_names_tell() -> None:
    answer = {**NOTHING, "tools": ["npu-smi"], "files": ["/dev/davinci0"]}
    assert answered(NpuProduct, {**answer, "chips": {"out": M_A2, "code": 0}}).family == "A2"
    assert answered(NpuProduct, {**answer, "chips": {"out": M_A3, "code": 0}}).family == "A3"
    failed = answered(NpuProduct, {**answer, "chips": {"out": DOWN, "code": 187}})
    assert isinstance(failed, Unreadable) and failed.root_cause == "npu-driver-not-loaded"


@pytest.mark.parametrize(
    "answer",
    [
        {"pci": {"0000:c1:00.0": "d801", "0000:c2:00.0": "d802"}},
        {"pci": {"0000:c1:00.0": "d80f"}},
        {"files": ["/dev/davinci0"]},
        {"tools": ["npu-smi"], "chips": {"out": M_A2 + M_A1.splitlines()[1] + "\n", "code": 0}},
        {"tools": ["npu-smi"], "chips": {"out": M_A1.replace("910A", "777"), "code": 0}},
    ],
)
def test_evidence_that_conflicts_or_says_nothing_is_no_family(answer: dict[str, Any]) -> None:
    assert isinstance(answered(NpuProduct, {**NOTHING, **answer}), Unreadable)


def test_a_host_without_npus() -> None:
    answer = {**NOTHING, "tools": ["hccn_tool"]}
    assert answered(NpuProduct, answer) == answered(NpuInventory, answer) == Absent("the host has no NPU")


def test_the_inventory() -> None:
    files = ["/dev/davinci10", "/dev/davinci2", "/dev/davinci_manager"]
    answer = {
        **NOTHING,
        "files": files,
        "pci": {"a": "d802"},
        "refused": files[:1],
        "newer": ["/v"],
        "tools": ["npu-smi"],
    }
    assert answered(NpuInventory, answer) == NpuInventory(
        devices=(2, 10),
        pci_count=1,
        manager=True,
        denied_files=("/dev/davinci10",),
        tools=("npu-smi",),
        newer_than_boot=("/v",),
    )


ECC = """\
\tHBM Single Bit Error Count                : 4
\tHBM Double Bit Error Count                : 1
\tHBM Single Bit Isolated Pages Count       : 0
\tHBM Double Bit Isolated Pages Count       : 2
"""


def cards(*texts: str, code: int = 0) -> Output:
    """What the script of a query for every card prints."""
    return Output(out="".join(f"-- {n} --\n{text}-- exit {code} --\n" for n, text in enumerate(texts)))


def test_memory_errors_are_summed_over_the_chips_of_a_card() -> None:
    output = Output(out=cards(ECC, ECC + ECC).out + "-- 2 --\n-- exit 124 --\n-- 224 --\n" + ECC)
    value = read_outputs(NpuMemoryErrors, one=output)
    assert value.by_card == {0: MemoryErrors(1, 2), 1: MemoryErrors(2, 4)}
    silent, cut = "npu-smi: no answer in 5 s", "npu-smi: its output was cut off"
    assert value.unread == {"NPU card 2": silent, "NPU card 224": cut}


def test_memory_errors_that_nobody_tells() -> None:
    assert type(read_outputs(NpuMemoryErrors, one=Output(ended="absent", err="npu-smi is not installed"))) is Absent
    for output in (cards("Invalid card id.\n", code=215), cards(ECC[:60]), Output(code=187, out=DOWN), Output()):
        assert isinstance(read_outputs(NpuMemoryErrors, one=output), Unreadable)
    assert read_outputs(NpuMemoryErrors, one=Output(code=187, out=DOWN)).root_cause == "npu-driver-not-loaded"
    unsupported = cards("This device does not support querying ecc.\n", code=217)
    assert type(read_outputs(NpuMemoryErrors, one=unsupported)) is Absent


@given(st.binary(max_size=400), st.sampled_from([0, 1, 187]))
@pytest.mark.parametrize("fact", [NpuTable, NpuChips, NpuStart, NpuProduct, NpuInventory])
def test_noise_is_never_a_healthy_value(fact: type[Fact], noise: bytes, code: int) -> None:
    value = learned(fact, {"": Output(out=noise.decode("utf-8", "replace"), code=code)})
    assert isinstance(value, Absent)


@given(st.integers(0, len(A3)), st.text(max_size=20))
def test_a_table_with_noise_inside_never_gains_an_npu(place: int, noise: str) -> None:
    value = read_outputs(NpuTable, one=Output(out=A3[:place] + noise + A3[place:]))
    assert isinstance(value, Unreadable) or len(value.npus) <= 4


@pytest.mark.parametrize(("name", "is_inference"), [("310B4", True), ("310B1", True), ("910B3", False), ("xyz", False)])
def test_boards_whose_npu_is_no_pci_device_are_told_by_the_chip_name(name: str, is_inference: bool) -> None:
    """Atlas 200I DK A2 and OrangePi AIpro (310B4): no PCI function, and no network port of an NPU."""
    table = f"NPU ID     Chip ID     Chip Logic ID     Chip Name\n0          0           0                 {name}\n"
    detected = {"pci": {}, "files": ["/dev/davinci0", "/dev/davinci_manager"], "refused": [], "tools": ["npu-smi"]}
    value = answered(NpuInventory, {**detected, "chips": {"out": table, "code": 0}, "newer": []})
    assert value.inference is is_inference


FILES = json.dumps(
    {"pci": {}, "files": ["/dev/davinci0", "/dev/davinci1"], "refused": [], "tools": ["npu-smi"]}
    | {"chips": None, "newer": []}
)
CHIPS = "NPU ID     Chip ID     Chip Logic ID     Chip Name\n0          0           0                 Ascend 910B3\n"
LISTED = {
    "NpuInventory": {"": Output(out=FILES)},
    "NpuChips": {"": Output(out=CHIPS + CHIPS.splitlines()[1].replace("0 ", "1 ", 1))},
}
HCCS = "-- {} 0 --\n hccs health status : OK\n hccs lane mode : [4 4]\n hccs error count : [0 0]\n"
PCIE = "-- {} --\n TX Error Count : 0\n RX Error Count : 0\n-- exit 0 --\n"


@pytest.mark.parametrize(
    ("fact", "outputs", "unread"),
    [
        (DeviceMtu, {"0": Output(out="mtu:1500")}, "NPU 1"),
        (NpuHccs, {"": Output(out=HCCS.format(0))}, "NPU card 1 chip 0"),
        (NpuPcieErrors, {"": Output(out=PCIE.format(1))}, "NPU card 0"),
    ],
)
def test_a_device_that_is_there_and_without_an_answer_is_unread(
    fact: type[Fact], outputs: dict[str, Output], unread: str
) -> None:
    record = HostRecord(Visit(), {**LISTED, fact.__name__: outputs})
    value = FactCache({"n1": record}).get("n1", fact)
    assert isinstance(value, Fact) and value.unread == {unread: NO_ANSWER}
    alone = FactCache({"n1": HostRecord(Visit(), {fact.__name__: outputs})}).get("n1", fact)
    assert isinstance(alone, Fact) and alone.unread == {}, "without a list of devices nothing is missed"


def test_with_an_answer_of_each_device_nothing_is_unread() -> None:
    outputs = {"DeviceMtu": {number: Output(out="mtu:1500") for number in "01"}}
    outputs["NpuHccs"] = {"": Output(out=HCCS.format(0) + HCCS.format(1))}
    cache = FactCache({"n1": HostRecord(Visit(), {**LISTED, **outputs})})
    assert [cache.get("n1", fact).unread for fact in (DeviceMtu, NpuHccs)] == [{}, {}]  # type: ignore[union-attr]
