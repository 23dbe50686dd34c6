"""What rdma-errors-growing finds."""

from __future__ import annotations

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import messages, run_check


def test_counters_that_stand_still() -> None:
    still = port(before={"symbol_error": 5, "out_of_sequence": 9}, after={"symbol_error": 5, "out_of_sequence": 9})
    assert messages(run_check("rdma-errors-growing", {"w1": [rdma(still)]})) == []


def test_traffic_and_congestion_are_no_errors() -> None:
    busy = port(before={"np_cnp_sent": 5}, after={"np_cnp_sent": 900})
    assert messages(run_check("rdma-errors-growing", {"w1": [rdma(busy)]})) == []


def test_growth_is_named() -> None:
    ill = port(before={"symbol_error": 5, "out_of_sequence": 9}, after={"symbol_error": 7, "out_of_sequence": 20})
    ((host, text),) = messages(run_check("rdma-errors-growing", {"w1": [rdma(port(), ill)]}))
    assert host == "w1"
    assert text.startswith("error counters of mlx5_1:1 grew within a second: symbol_error: +2, out_of_sequence: +11;")
