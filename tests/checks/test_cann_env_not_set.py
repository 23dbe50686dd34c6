"""What cann-env-not-set finds."""

from __future__ import annotations

from tests.checks.devices import HCCL, SET_ENV, of, torch

look = of("cann_env_not_set")


def test_an_import_that_goes_well_at_once() -> None:
    assert look(torch()) == []


def test_an_import_that_needs_the_script() -> None:
    (finding,) = look(torch(HCCL, "", SET_ENV))
    assert str(finding) == f"import torch succeeds only after sourcing {SET_ENV}"
    assert finding.values["library"] == "libhccl.so"


def test_an_import_that_fails_all_the_same_is_left_to_the_other_check() -> None:
    assert look(torch(HCCL, HCCL, SET_ENV)) == []
