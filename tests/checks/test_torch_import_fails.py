"""What torch-import-fails finds."""

from __future__ import annotations

import msgspec

from tests.checks.devices import HAL, HCCL, SET_ENV, of, torch

look = of("torch_import_fails")
YAML = "ModuleNotFoundError: No module named 'yaml'"


def test_an_import_that_goes_well() -> None:
    assert look(torch()) == []


def test_what_was_raised_is_shown() -> None:
    (finding,) = look(torch(YAML, YAML))
    assert str(finding) == f"import torch fails: {YAML}"


def test_what_is_raised_once_cann_is_there_counts() -> None:
    (finding,) = look(torch(HCCL, YAML, SET_ENV))
    assert finding.values["observed"] == YAML


def test_cann_and_driver_are_left_to_the_other_check() -> None:
    assert look(torch(HCCL, HCCL)) == look(torch(HAL, HAL)) == []


def test_a_file_that_hides_a_standard_module_is_named_in_the_remedy() -> None:
    text = "AttributeError: module 'platform' has no attribute 'system'"
    hidden = msgspec.structs.replace(torch(text, text), hides=("/opt/j/platform.py",))
    (finding,) = look(hidden)
    assert "Rename /opt/j/platform.py:" in str(finding.values["remedy"])
    assert look(msgspec.structs.replace(torch(), hides=("/opt/j/platform.py",))) == []


def test_variables_of_the_job_that_break_it_are_named() -> None:
    """Whatever the words are: without the variables the same interpreter has imported it."""
    (finding,) = look(msgspec.structs.replace(torch(HCCL, HCCL), broken_by=("OMP_STACKSIZE", "TORCH_LOGS")))
    assert str(finding).startswith("import torch fails with the job's variables (OMP_STACKSIZE and TORCH_LOGS)")
    assert "OMP_STACKSIZE or TORCH_LOGS" in finding.values["remedy"]


def test_what_to_do_is_that_of_the_error() -> None:
    assert [look(torch(text, text))[0].values["case"] for text in (YAML, "killed by signal 11", "odd")] == [
        ["Module"],
        ["Signal"],
        [],
    ]


def test_an_error_that_a_signature_knows_has_its_remedy() -> None:
    text = "OSError: /usr/lib/aarch64-linux-gnu/libgomp.so.1: cannot allocate memory in static TLS block"
    (finding,) = look(torch(text, text))
    assert "export LD_PRELOAD=" in finding.values["remedy"]
    (finding,) = look(torch("ValueError: x", "ValueError: x"))
    assert not finding.values["remedy"]
