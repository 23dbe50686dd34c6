"""What torch-npu-cann-mismatch finds."""

from __future__ import annotations

import pytest

from tests.checks.devices import cann, of, python, skipped, unknown

look = of("torch_npu_cann_mismatch")


@pytest.mark.parametrize(
    ("torch_npu", "version"),
    [("2.7.1", "8.3.RC1"), ("2.7.1.post2", "8.5.1"), ("2.1.0.post13", "8.2.RC1.beta1"), ("2.12.0", "9.1.0")],
)
def test_a_pair_of_the_table(torch_npu: str, version: str) -> None:
    assert look(python(torch_npu=torch_npu), cann(version)) == []


def test_another_cann() -> None:
    (finding,) = look(python(torch_npu="2.7.1.post4"), cann("8.3.RC1"))
    assert str(finding) == "torch_npu 2.7.1.post4 on CANN 8.3.RC1; it was released for CANN 9.0.0"


def test_a_release_that_the_table_does_not_hold_is_unknown_not_wrong() -> None:
    assert "not in the compatibility table of 2026-08-21" in str(unknown(look, python(torch_npu="2.13.0"), cann()))


def test_no_torch_npu() -> None:
    assert skipped(look, python(), cann())


@pytest.mark.parametrize(
    ("mindspore", "version"),
    [("2.6.0", "8.2.RC1"), ("2.7.1", "8.3.RC1"), ("2.7.2", "8.5.1"), ("2.7.0rc1", "8.2.RC1.beta1")],
)
def test_mindspore_on_its_cann(mindspore: str, version: str) -> None:
    assert look(python(mindspore=mindspore), cann(version)) == []


def test_mindspore_on_another_cann() -> None:
    (finding,) = look(python(mindspore="2.7.1"), cann("8.5.0"))
    assert str(finding) == "MindSpore 2.7.1 on CANN 8.5.0; it was released for CANN 8.3.RC1"
    (finding,) = look(python(mindspore="2.7.1", torch_npu="2.7.1.post2"), cann("8.5.0"))
    assert "MindSpore" in str(finding)


def test_a_mindspore_that_the_table_does_not_hold_is_not_judged() -> None:
    assert "MindSpore 2.5.0" in str(skipped(look, python(mindspore="2.5.0"), cann("8.0.0")))
    assert "torch_npu 2.13.0" in str(unknown(look, python(mindspore="2.5.0", torch_npu="2.13.0"), cann("8.0.0")))
