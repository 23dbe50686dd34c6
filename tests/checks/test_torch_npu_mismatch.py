"""What torch-npu-mismatch finds."""

from __future__ import annotations

import pytest

from tests.checks.devices import of, python, skipped, unknown

look = of("torch_npu_mismatch")


@pytest.mark.parametrize(
    ("torch", "torch_npu"), [("2.7.1", "2.7.1"), ("2.7.1+cpu", "2.7.1.post4"), ("2.1.0", "2.1.0.rc1")]
)
def test_a_pair(torch: str, torch_npu: str) -> None:
    assert look(python(torch=torch, torch_npu=torch_npu)) == []


def test_another_torch() -> None:
    (finding,) = look(python(torch="2.8.0+cpu", torch_npu="2.7.1.post4"))
    assert str(finding) == "torch 2.8.0+cpu with torch_npu 2.7.1.post4; expected torch 2.7.1"
    assert finding.values["python"] == "/opt/job/python"


def test_no_torch() -> None:
    (finding,) = look(python(torch_npu="2.7.1.post4"))
    assert (finding.values["observed"], finding.values["expected"]) == ("no torch", "2.7.1")


def test_no_torch_npu() -> None:
    assert skipped(look, python(torch="2.7.1"))


def test_versions_that_cannot_be_compared() -> None:
    assert unknown(look, python(torch="main", torch_npu="2.7.1"))


def test_two_versions_of_torch_are_not_judged() -> None:
    assert unknown(look, python(unread={"torch": "several"}, torch_npu="2.7.1"))
