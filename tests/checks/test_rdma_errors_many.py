"""What rdma-errors-many finds."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.checks.gpu_hosts import port, rdma
from tests.checks.run_check import messages, run_check

MONTH = 30 * 86400.0


def host(*counts: int, counter: str = "link_downed", uptime: float = MONTH) -> Any:
    """A host whose ports have counted so much."""
    return rdma(*(port(after={counter: count}) for count in counts), uptime=uptime)


def names(outcome: Any) -> list[tuple[str, str]]:
    return [(" ".join(finding.hosts), finding.values["port"]) for finding in outcome.findings]


def test_ports_alike_are_no_finding() -> None:
    quiet = {f"w{n}": [host(1, 2)] for n in range(4)}
    assert messages(run_check("rdma-errors-many", quiet)) == []
    restarted = {f"w{n}": [host(40, 41)] for n in range(4)}
    assert messages(run_check("rdma-errors-many", restarted)) == []


def test_a_link_that_flaps_daily_is_found() -> None:
    fleet = {f"w{n}": [host(1, 2)] for n in range(4)} | {"bad": [host(0, 412)]}
    assert names(run_check("rdma-errors-many", fleet)) == [("bad", "mlx5_1:1")]
    assert names(run_check("rdma-errors-many", {"w1": [host(1, 37)]})) == [("w1", "mlx5_1:1")]


def test_few_errors_in_a_long_time_and_few_ports_are_no_finding() -> None:
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 37, uptime=400 * 86400.0)]})) == []
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 9)]})) == []
    assert names(run_check("rdma-errors-many", {"w1": [host(0, 99, counter="symbol_error")]})) == []


HANGS = {
    "local_ack_timeout_err": 91316,
    "np_cnp_sent": 17269947,
    "out_of_sequence": 6140236,
    "packet_seq_err": 929974,
    "duplicate_request": 0,
}
"""Of a host whose jobs hung, mlx5_0: github.com/NVIDIA/nccl, issue 394."""


def busy(packets: int, *, days: float = 30, **counts: int) -> Any:
    """A host whose one port has received so many packets, and has counted so much."""
    return rdma(port(after={"port_rcv_packets": packets, **counts}), uptime=days * 86400.0)


def test_lost_packets_and_congestion_are_judged_by_time_and_by_packets() -> None:
    quiet = {f"w{n}": [busy(10**11, **dict.fromkeys(HANGS, 40))] for n in range(4)}
    (finding,) = run_check("rdma-errors-many", quiet | {"bad": [busy(10**11, **HANGS)]}).findings
    assert (finding.hosts, finding.values["counter"]) == (("bad",), "np_cnp_sent")
    assert finding.values["observed"] == {name: count for name, count in sorted(HANGS.items()) if count}
    # twenty times the traffic of the others, with as many for each packet
    worked = busy(2 * 10**12, **dict.fromkeys(HANGS, 2000))
    assert names(run_check("rdma-errors-many", quiet | {"w9": [worked]})) == []
    idle = busy(10**6, **dict.fromkeys(HANGS, 999))  # many for each packet, and few in all
    assert names(run_check("rdma-errors-many", quiet | {"w9": [idle]})) == []


def test_a_network_that_loses_packets_everywhere_names_no_host() -> None:
    alike = {f"w{n}": [busy(10**11, **HANGS)] for n in range(6)}
    assert names(run_check("rdma-errors-many", alike)) == []


def test_lost_packets_of_a_single_host() -> None:
    """Congestion is judged against others alone."""
    (finding,) = run_check("rdma-errors-many", {"w1": [busy(0, days=7, **HANGS)]}).findings
    assert list(finding.values["observed"]) == ["local_ack_timeout_err", "packet_seq_err"]
    assert names(run_check("rdma-errors-many", {"w1": [busy(0, days=7, local_ack_timeout_err=2705)]})) == []


def test_where_no_counter_tells_of_packets_time_alone_decides() -> None:
    fleet = {f"w{n}": [host(0, 0, counter="to_retransmits")] for n in range(4)}
    assert names(run_check("rdma-errors-many", fleet | {"w9": [host(0, 99999, counter="to_retransmits")]})) == [
        ("w9", "mlx5_1:1")
    ]


def test_older_records_are_not_judged() -> None:
    fleet = {f"w{n}": [host(0, 0)] for n in range(4)}
    old = msgspec.structs.replace(
        host(0, 412), devices=tuple(msgspec.structs.replace(device, uptime=0.0) for device in host(0, 412).devices)
    )
    assert names(run_check("rdma-errors-many", fleet | {"w9": [old]})) == []


def test_a_host_that_was_started_today_is_not_taken_for_one_with_a_high_rate() -> None:
    fleet = {f"w{n}": [host(30, 30)] for n in range(4)} | {"new": [host(8, 8, uptime=600.0)]}
    assert names(run_check("rdma-errors-many", fleet)) == []
