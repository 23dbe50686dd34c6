"""What cann-missing finds."""

from __future__ import annotations

from tests.checks.devices import cann, inventory, of, python, skipped

look = of("cann_missing")


def test_cann_is_there() -> None:
    assert look(inventory(), python(torch_npu="2.7.1"), cann()) == []


def test_torch_npu_without_cann() -> None:
    (finding,) = look(inventory(), python(torch_npu="2.7.1"), None)
    assert str(finding) == "torch_npu 2.7.1 is installed, but CANN is not"


def test_mindspore_without_cann() -> None:
    (finding,) = look(inventory(), python(mindspore="2.6.0"), None)
    assert str(finding) == "mindspore 2.6.0 is installed, but CANN is not"


def test_a_host_that_is_not_where_the_job_runs() -> None:
    assert "--within" in skipped(look, inventory(), python(), None)
