"""Hydra's mpiexec: a launch for a preflight, and none that ranks could meet by."""

from __future__ import annotations

from doctor.environment.job_context import detect
from tests.environment.contexts import context, fields, launcher_sample, reader, summary

EXAMPLE = launcher_sample("mpiexec")


def test_a_context() -> None:
    detected = context(EXAMPLE)
    assert summary(detected) == ("mpiexec, rank 4 of 5", "mpich", "follower")
    expected = {"kind": "mpich", "rank": 4, "world_size": 5, "local_rank": 1, "local_world_size": 2, "device": 1}
    assert fields(detected, expected) == expected


def test_no_address_of_rank_0_is_set() -> None:
    assert detect(EXAMPLE, reader({}), as_rank=True).launcher == ""


def test_slurms_pmi_alone_is_not_hydra() -> None:
    assert context({"PMI_RANK": "4", "PMI_SIZE": "5"}).launcher == ""
