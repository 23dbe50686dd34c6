"""launch-npu-count-refused."""

from __future__ import annotations

from doctor.engine.result import Status
from tests.checks.launches import UNDECIDED, run_check
from tests.checks.tables import list_messages

NAME = "launch-npu-count-refused"


def test_counts_of_a1() -> None:
    assert run_check(NAME, "", {"ranks_per_node": 4}, "A1").status is Status.PASSED
    assert list_messages(run_check(NAME, "", {"ranks_per_node": 6}, "A1")) == [
        (
            "6 ranks on each host at run.sh:2 form no group on this product | observed --ranks_per_node 6 (run.sh:2) | "
            "expected 1, 2, 4 or 8"
        )
    ]
    assert run_check(NAME, "", {"ranks_per_node": 6}, "A2").status is Status.SKIPPED


def test_without_a_product_only_npus_are_in_doubt() -> None:
    assert run_check(NAME, "", {"ranks_per_node": 6}).status is Status.SKIPPED
    assert run_check(NAME, "", {"ranks_per_node": 6, "launcher": "msrun"}).status is Status.UNKNOWN
    assert run_check(NAME, "", {"ranks_per_node": UNDECIDED}).status is Status.SKIPPED, "of GPUs, say"
    assert run_check(NAME, "", {"ranks_per_node": UNDECIDED, "launcher": "msrun"}).status is Status.UNKNOWN
    assert run_check(NAME, "", {"ranks_per_node": UNDECIDED}, "A1").status is Status.UNKNOWN
