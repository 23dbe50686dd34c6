"""Open MPI's mpirun: which rank its variables say, and where rank 0 may be."""

from __future__ import annotations

from typing import Any

import pytest

from tests.environment.contexts import Environ, context, fields, launcher_sample, rank_context, summary

EXAMPLE = launcher_sample("mpirun")
TWO_ON_A_HOST = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "937033729",
}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            EXAMPLE,
            {
                "launcher": "mpirun",
                "rank": 3,
                "world_size": 4,
                "local_rank": 0,
                "local_world_size": 1,
                "leader_addresses": ("192.0.2.2", "10.1.0.2", "fd00::2"),
                "leader_address_source": "OMPI_MCA_orte_hnp_uri",
                "leader_port": 0,
                "launch_id": "mpirun 1266024449",
            },
        ),
        (
            {**EXAMPLE, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
            {"leader_addresses": ("127.0.0.1",), "leader_address_source": "MASTER_ADDR", "launch_notes": ()},
        ),
        (
            {**EXAMPLE, "MASTER_ADDR": "w1", "MASTER_PORT": "29500"},
            {"leader_addresses": ("w1",), "leader_port": 29500, "launch_notes": ()},
        ),
    ],
)
def test_a_rank(environ: Environ, expected: dict[str, Any]) -> None:
    detected = rank_context(environ)
    assert fields(detected, expected) == expected
    assert detected.problems == ()


def test_a_guessed_host_of_rank_0_is_reported_as_a_guess() -> None:
    (note,) = rank_context(EXAMPLE).launch_notes
    assert note.startswith("MASTER_ADDR is not set, so rank 0 was assumed on mpirun's host")


def test_a_context() -> None:
    detected = context(TWO_ON_A_HOST)
    assert summary(detected) == ("mpirun, rank 2 of 3", "openmpi", "follower")
    expected = {"kind": "openmpi", "started": "ranks", "local_rank": 1, "local_world_size": 2, "shares_host": True}
    assert fields(detected, expected) == expected


def test_the_launch_id_is_the_jobs() -> None:
    launch_id = rank_context(EXAMPLE).launch_id
    others = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "3"}
    assert rank_context({**EXAMPLE, **others}).launch_id == launch_id
    assert rank_context({**EXAMPLE, "PMIX_NAMESPACE": "1"}).launch_id != launch_id
