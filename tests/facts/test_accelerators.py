"""Accelerators on the PCI bus of this machine, and what is no answer."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.accelerators import OtherAccelerators, accelerator_vendors, detect_accelerators
from tests.facts.answers import answered, read_outputs


def test_the_question_is_answered_here() -> None:
    answer = detect_accelerators({})
    assert sorted(answer) == ["devices", "files"]
    assert isinstance(answered(OtherAccelerators, answer), OtherAccelerators | Absent)


def test_every_vendor_can_be_found() -> None:
    for vendor in accelerator_vendors().values():
        assert vendor.files and (vendor.classes or vendor.devices), vendor
        assert all(len(number) == 4 for number in (vendor.id, *vendor.classes, *vendor.devices)), vendor


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"devices": [["a"]], "files": []}', "null"])
def test_what_is_no_answer(text: str) -> None:
    assert isinstance(read_outputs(OtherAccelerators, one=Output(out=text)), Unreadable)
