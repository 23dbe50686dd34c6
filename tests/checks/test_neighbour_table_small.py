from doctor.facts.neighbour_table import NeighbourTable
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.run_check import advice, messages, run_check

NAME = "neighbour-table-small"


def fleet(count: int, limit: int | None = 1024, overflows: int = 0, prefix: int = 16) -> dict[str, list[object]]:
    """Hosts in 10.0.0.0/16, whose kernels have this limit."""
    return {
        f"n{number:04}": [
            NeighbourTable(limit=limit, overflows=overflows),
            HostAddresses(interfaces=(InterfaceAddress("eth0", f"10.0.{number >> 8}.{number & 255}", prefix),)),
        ]
        for number in range(1, count + 1)
    }


def test_a_table_with_room_for_the_fleet_and_a_quarter_more_is_well() -> None:
    assert messages(run_check(NAME, fleet(820))) == []


def test_a_flat_network_of_a_thousand_hosts_needs_more_than_the_default() -> None:
    outcome = run_check(NAME, fleet(1000))
    assert len(outcome.findings) == 1000
    assert messages(outcome)[0] == (
        "n0001",
        (
            "the neighbour table holds 1024 entries, for 999 hosts of the fleet in the host's own subnets; "
            "expected room for 4096 (net.ipv4.neigh.default.gc_thresh3)"
        ),
    )
    assert "gc_thresh3=4096" in advice(NAME, outcome) and "gc_thresh2=2048" in advice(NAME, outcome)


def test_hosts_behind_a_router_are_no_neighbours() -> None:
    assert messages(run_check(NAME, fleet(1000, prefix=24))) == []


def test_a_table_that_has_overflowed_is_too_small_for_neighbours_outside_of_the_fleet() -> None:
    assert messages(run_check(NAME, fleet(1, overflows=3))) == [
        (
            "n0001",
            (
                "the neighbour table, of 1024 entries, overflowed 3 times since the host started; "
                "expected room for 4096 (net.ipv4.neigh.default.gc_thresh3)"
            ),
        )
    ]


def test_a_container_does_not_show_the_limit() -> None:
    assert run_check(NAME, fleet(1000, limit=None)).status.value == "skipped"


def test_an_overflow_from_before_the_limit_was_raised_is_no_finding() -> None:
    assert messages(run_check(NAME, fleet(1, limit=4096, overflows=3))) == []
