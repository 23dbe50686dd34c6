"""What numpy-too-new finds."""

from __future__ import annotations

from tests.checks.devices import of, python, skipped

look = of("numpy_too_new")


def test_numpy_1_or_none() -> None:
    assert look(python(torch_npu="2.7.1", numpy="1.26.4")) == []
    assert look(python(torch_npu="2.7.1")) == []


def test_numpy_2() -> None:
    (finding,) = look(python(torch_npu="2.7.1", numpy="2.0.2"))
    assert str(finding) == "numpy 2.0.2 with torch_npu; expected 1.x"


def test_numpy_without_torch_npu_is_free() -> None:
    assert skipped(look, python(torch="2.7.1", numpy="2.0.2"))
