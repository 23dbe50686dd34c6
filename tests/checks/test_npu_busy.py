"""What npu-busy finds."""

from __future__ import annotations

from doctor.facts.npu_table import NpuProcess
from doctor.facts.processes import DeviceUser, NpuProcesses
from tests.checks.devices import of, state, table, unknown

look = of("npu_busy")
BUSY_TABLE = table(state(3, npu=1, chip=1), processes=(NpuProcess(1, 1, 4242, "python3", 3400),))


def test_idle_npus() -> None:
    assert look(table(state(hbm_used=4200)), None) == []


def test_a_process_is_named_with_its_npu() -> None:
    (finding,) = look(BUSY_TABLE, None)
    assert str(finding) == "NPU 3 is held by process 4242 (python3), 3400 MB; expected none"
    assert finding.values["user"] == "not known"


def test_its_owner_is_told_where_it_is_known() -> None:
    (finding,) = look(BUSY_TABLE, NpuProcesses(device_users=(DeviceUser(4242, "python3", "ann", 90, (3,)),)))
    assert (finding.values["user"], finding.values["running"]) == ("ann", "90 s")


def test_a_process_whose_name_npu_smi_cannot_tell() -> None:
    nameless = table(state(0), processes=(NpuProcess(0, 0, 42, "", 10),))
    (finding,) = look(nameless, None)
    assert "(name not known)" in str(finding)
    (finding,) = look(nameless, NpuProcesses(device_users=(DeviceUser(42, "python3", "ann", 90, (0,)),)))
    assert "(python3)" in str(finding)


def test_a_file_that_is_open_is_no_process_on_the_npu() -> None:
    assert look(table(), NpuProcesses(device_users=(DeviceUser(7, "exporter", "root", 90, (0,)),))) == []


def test_a_list_that_is_not_complete_is_unknown_after_what_it_names() -> None:
    assert "lists no processes" in str(unknown(look, table(process_problem="this driver lists no processes"), None))
