"""What npu-driver-not-loaded finds."""

from __future__ import annotations

from typing import Literal

from doctor.facts.npu import NpuStart, StartFailure
from tests.checks.containers import place
from tests.checks.devices import inventory, of, unknown

look = of("npu_driver_not_loaded")


def failed(kind: Literal["driver", "busy", "library"] = "driver", said: str = "ret is -8005") -> NpuStart:
    return NpuStart(failure=StartFailure(kind, said), cards=0)


def test_npu_smi_starts() -> None:
    assert look(NpuStart(failure=None, cards=8), inventory(manager=False)) == []


def test_without_the_manager_file_the_module_is_not_loaded() -> None:
    (found,) = look(failed(), inventory((), manager=False))
    assert str(found) == "the NPU driver is not loaded: there is no /dev/davinci_manager"
    assert found.values["observed"] == "ret is -8005"
    assert "reinstall the driver" in found.values["remedy"]


def test_an_installation_after_the_last_start_wants_a_restart() -> None:
    (found,) = look(failed(), inventory(newer_than_boot=("/usr/local/Ascend/driver/version.info",)))
    assert "restart the host" in str(found)
    assert found.values["files"] == ["/usr/local/Ascend/driver/version.info"]


def test_a_loaded_driver_that_says_nothing() -> None:
    (found,) = look(failed(), inventory())
    assert str(found) == "the NPU driver is loaded but does not answer"


def test_a_user_who_may_not_ask_proves_nothing_of_the_driver() -> None:
    why = unknown(look, failed(), inventory(denied_files=("/dev/davinci0",)))
    assert why.root_cause == "npu-user-not-in-group"


def test_other_ways_not_to_start() -> None:
    (found,) = look(failed("busy", "ret is -8020"), inventory())
    assert "`fuser -v /dev/davinci*`" in found.values["remedy"]
    assert "in use by another process: ret is -8020" in str(found)
    (found,) = look(failed("library", "libdcmi.so"), inventory())
    assert str(found) == "npu-smi cannot load its libraries: libdcmi.so"
    assert "`ldconfig -p | grep libdcmi`" in found.values["remedy"]


def test_a_container_without_the_drivers_file() -> None:
    why = unknown(look, failed(), inventory(manager=False), place(engine="docker"))
    assert why.root_cause == "container-devices-missing"
