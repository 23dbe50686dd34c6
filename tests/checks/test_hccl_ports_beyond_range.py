import pytest

from doctor.facts.ports import ReservedPorts
from doctor.job import PortRange
from tests.checks.npus import npus
from tests.checks.run_check import job, messages, run_check

NAME = "hccl-ports-beyond-range"
HOSTS = {"a": [npus(8)]}


@pytest.mark.parametrize("base", ["60000", "65504", "1024"])
def test_a_base_with_room_above_is_well(base: str) -> None:
    assert messages(run_check(NAME, HOSTS, job(HCCL_IF_BASE_PORT=base))) == []


def test_a_base_too_near_the_end() -> None:
    outcome = run_check(NAME, HOSTS, job(HCCL_IF_BASE_PORT="65520"))
    text = "HCCL_IF_BASE_PORT is 65520: 16 of its 32 ports would be above 65535"
    assert [str(finding) for finding in outcome.findings] == [text]


def test_the_list_keeps_what_all_hosts_have_reserved_and_takes_no_word_of_one() -> None:
    reserved = ReservedPorts(reserved=(PortRange(8080, 8080),), ephemeral=PortRange(32768, 60999))
    liar = ReservedPorts(reserved=(PortRange(1024, 65000),), ephemeral=PortRange(32768, 60999))
    for other, merged in ((reserved, "8080,60000-60031"), (liar, None)):
        outcome = run_check(NAME, {"a": [npus(8), reserved], "b": [npus(8), other]}, job(HCCL_IF_BASE_PORT="65520"))
        assert outcome.findings[0].values["merged"] == merged


def test_a_range_of_the_jobs_own_replaces_the_base() -> None:
    launch = job(HCCL_IF_BASE_PORT="65520", HCCL_HOST_SOCKET_PORT_RANGE="60000-60031")
    assert messages(run_check(NAME, HOSTS, launch)) == []


def test_a_fleet_without_npus_is_not_judged() -> None:
    assert run_check(NAME, {"a": []}, job(HCCL_IF_BASE_PORT="65520")).status.value == "skipped"
