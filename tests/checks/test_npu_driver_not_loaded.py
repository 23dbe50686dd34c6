"""What npu-driver-not-loaded finds."""

from __future__ import annotations

from typing import Literal

from doctor.facts.npu import NpuStart, StartFailure
from tests.checks.containers import place
from tests.checks.devices import inventory, of, unknown

look = of("npu_driver_not_loaded")


def failed(kind: Literal["driver", "busy", "library"] = "driver", output: str = "ret is -8005") -> NpuStart:
    return NpuStart(failure=StartFailure(kind, output), cards=0)


def test_npu_smi_starts() -> None:
    assert look(NpuStart(failure=None, cards=8), inventory(manager=False)) == []


def test_without_the_manager_file_the_module_is_not_loaded() -> None:
    (finding,) = look(failed(), inventory((), manager=False))
    assert str(finding) == "the NPU driver is not loaded: there is no /dev/davinci_manager"
    assert finding.values["observed"] == "ret is -8005"
    assert "reinstall the driver" in finding.values["remedy"]


def test_an_installation_after_the_last_start_wants_a_restart() -> None:
    (finding,) = look(failed(), inventory(newer_than_boot=("/usr/local/Ascend/driver/version.info",)))
    assert "restart the host" in str(finding)
    assert finding.values["files"] == ["/usr/local/Ascend/driver/version.info"]


def test_an_image_has_version_files_that_are_newer_than_the_host_is_up() -> None:
    newer = inventory(newer_than_boot=("/usr/local/Ascend/driver/version.info",))
    (finding,) = look(failed(), newer, place(engine="docker"))
    assert str(finding) == "the NPU driver is loaded but does not answer"


def test_a_loaded_driver_that_says_nothing() -> None:
    (finding,) = look(failed(), inventory())
    assert str(finding) == "the NPU driver is loaded but does not answer"


def test_a_user_who_may_not_ask_proves_nothing_of_the_driver() -> None:
    why = unknown(look, failed(), inventory(denied_files=("/dev/davinci0",)))
    assert why.root_cause == "npu-user-not-in-group"


def test_other_ways_not_to_start() -> None:
    (finding,) = look(failed("busy", "ret is -8020"), inventory())
    assert "`fuser -v /dev/davinci*`" in finding.values["remedy"]
    assert "in use by another process: ret is -8020" in str(finding)
    (finding,) = look(failed("library", "libdcmi.so"), inventory())
    assert str(finding) == "npu-smi cannot load its libraries: libdcmi.so"
    assert "`ldconfig -p | grep libdcmi`" in finding.values["remedy"]


def test_a_container_without_the_drivers_file() -> None:
    why = unknown(look, failed(), inventory(manager=False), place(engine="docker"))
    assert why.root_cause == "container-devices-missing"
