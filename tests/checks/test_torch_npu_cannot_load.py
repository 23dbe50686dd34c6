"""What torch-npu-cannot-load finds."""

from __future__ import annotations

from tests.checks.devices import HAL, HCCL, SET_ENV, of, torch

look = of("torch_npu_cannot_load")


def test_an_import_that_goes_well_at_once_or_after_sourcing() -> None:
    assert look(torch()) == []
    assert look(torch(HCCL, "", SET_ENV)) == []


def test_no_cann_at_all() -> None:
    (finding,) = look(torch(HCCL, HCCL))
    assert str(finding) == "import torch cannot find CANN (libhccl.so), and there is no set_env.sh to source"
    assert (finding.values["library"], finding.values["observed"]) == ("libhccl.so", HCCL)


def test_a_cann_that_does_not_load() -> None:
    (finding,) = look(torch(HCCL, HCCL, SET_ENV))
    assert str(finding) == f"import torch cannot find CANN (libhccl.so), even after sourcing {SET_ENV}"
    assert f"source {SET_ENV}" in finding.values["remedy"]


def test_the_driver_is_told_apart() -> None:
    (finding,) = look(torch(HAL, HAL, SET_ENV))
    assert str(finding) == "import torch fails: libascend_hal.so of the NPU driver is not found"
    assert "LD_LIBRARY_PATH" in finding.values["remedy"]


def test_the_driver_is_told_apart_once_cann_is_there() -> None:
    (finding,) = look(torch(HCCL, HAL, SET_ENV))
    assert finding.values["library"] == "libascend_hal.so"


def test_what_is_neither_is_left_to_the_other_check() -> None:
    error = "ModuleNotFoundError: No module named 'yaml'"
    assert look(torch(error, error)) == []
