import msgspec
import pytest

from doctor.facts.ports import ReservedPorts, parse_ports
from doctor.job import LaunchConfig, PortRange
from tests.checks.run_check import advice, messages, run_check

NAME = "local-ports-few"


def ports(first: int, last: int, reserved: str = "") -> dict[str, list[ReservedPorts]]:
    return {"a": [ReservedPorts(reserved=parse_ports(reserved), ephemeral=PortRange(first, last))]}


@pytest.mark.parametrize("range_", [(32768, 60999), (1024, 65535), (40000, 41023)])
def test_a_range_that_is_wide_enough(range_: tuple[int, int]) -> None:
    assert messages(run_check(NAME, ports(*range_, "8080,60000-60031" if range_[0] != 40000 else ""))) == []


def test_a_narrow_range() -> None:
    outcome = run_check(NAME, ports(40000, 40063))
    text = "the kernel has 64 local ports to assign (40000-40063, reserved: none); expected at least 1024"
    assert messages(outcome) == [("a", text)]
    assert outcome.found_severity.value == "warning"
    assert 'sysctl -w net.ipv4.ip_local_port_range="32768 60999"' in advice(NAME, outcome)


def test_reserved_ports_that_leave_none() -> None:
    outcome = run_check(NAME, ports(32768, 60999, "1-60000,60002-65535"))
    assert outcome.findings[0].values["observed"] == 1
    assert outcome.found_severity.value == "error"
    assert "take them out" in advice(NAME, outcome).replace("\n", " ")


@pytest.mark.parametrize(
    ("reserved", "wider"), [("32768-60990", "32768 65535"), ("32768-65000", "10000 28999"), ("1-65535", "32768 60999")]
)
def test_the_range_that_is_named_has_enough_beside_the_reserved_ports(reserved: str, wider: str) -> None:
    outcome = run_check(NAME, ports(32768, 60999, reserved))
    assert f'sysctl -w net.ipv4.ip_local_port_range="{wider}"' in advice(NAME, outcome)
    first, last = map(int, wider.split())
    assert bool(messages(run_check(NAME, ports(first, last, reserved)))) == (reserved == "1-65535")


@pytest.mark.parametrize(("ranks", "severity"), [(31, "warning"), (32, "error")])
def test_an_error_where_the_ranks_of_the_host_cannot_have_their_sockets(ranks: int, severity: str) -> None:
    launch = msgspec.structs.replace(LaunchConfig.from_environment({}), ranks_per_host=ranks)
    assert run_check(NAME, ports(40000, 40063), launch).found_severity.value == severity


@pytest.mark.parametrize(("last", "severity"), [(40002, "error"), (40003, "warning")])
def test_what_no_job_under_torchrun_lives_with_is_an_error_whatever_its_size(last: int, severity: str) -> None:
    """Three ports: torchrun's only rank on the host ended with "bind: Address already in use"; it lives with four."""
    assert run_check(NAME, ports(40000, last)).found_severity.value == severity
