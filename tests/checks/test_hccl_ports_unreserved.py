import pytest

from tests.checks.containers import container
from tests.checks.npus import npus
from tests.checks.ports import reserved
from tests.checks.run_check import advice, job, messages, run_check, skipped

NAME = "hccl-ports-unreserved"


@pytest.mark.parametrize("text", ["60000-60031", "60000-60015", "60000-60007,60008-60031", "1-65535"])
def test_the_first_sixteen_reserved_are_well(text: str) -> None:
    assert messages(run_check(NAME, {"a": [reserved(text), npus(8)]})) == []


@pytest.mark.parametrize(
    ("text", "lost"), [("", "60000-60015"), ("60000-60014", "60015"), ("60001-60031", "60000"), ("8080", "60000-60015")]
)
def test_ports_that_may_be_given_away(text: str, lost: str) -> None:
    outcome = run_check(NAME, {"a": [reserved(text), npus(8)]})
    assert outcome.findings[0].values["ports"] == lost


def test_the_sentence() -> None:
    (finding,) = run_check(NAME, {"a": [reserved(""), npus(8)]}).findings
    assert str(finding) == (
        "ports 60000-60015 may be assigned to any outgoing connection (local ports 32768-60999); "
        "reserved: none, expected reserved: 60000-60031"
    )


def test_the_advice_keeps_what_is_reserved_already() -> None:
    outcome = run_check(NAME, {"a": [reserved("8080,60000-60003"), npus(8)]})
    assert "sysctl -w net.ipv4.ip_local_reserved_ports=8080,60000-60031" in advice(NAME, outcome)


def test_ports_that_the_kernel_never_hands_out_need_no_reservation() -> None:
    assert messages(run_check(NAME, {"a": [reserved("", 32768, 59999), npus(8)]})) == []
    assert messages(run_check(NAME, {"a": [reserved(""), npus(8)]}, job(HCCL_IF_BASE_PORT="20000"))) == []


def test_another_base() -> None:
    outcome = run_check(NAME, {"a": [reserved("60000-60031"), npus(8)]}, job(HCCL_IF_BASE_PORT="50000"))
    assert outcome.findings[0].values["ports"] == "50000-50015"


def test_ranges_of_the_jobs_own() -> None:
    ports = "60100,50000-50002"
    outcome = run_check(NAME, {"a": [reserved("60100"), npus(8)]}, job(HCCL_HOST_SOCKET_PORT_RANGE=ports))
    assert outcome.findings[0].values["ports"] == "50000-50002"


def test_ports_that_the_kernel_chooses_are_not_judged() -> None:
    outcome = run_check(NAME, {"a": [reserved(""), npus(8)]}, job(HCCL_HOST_SOCKET_PORT_RANGE="auto"))
    assert messages(outcome) == []
    assert skipped(outcome) == {"HCCL_HOST_SOCKET_PORT_RANGE is auto: the kernel gives HCCL free ports"}


def test_a_host_without_npus_is_not_judged() -> None:
    assert skipped(run_check(NAME, {"a": [reserved("")]})) == {"no NpuInventory"}


def test_in_a_network_of_its_own_only_the_job_makes_connections() -> None:
    hosts = {"a": [reserved(""), npus(8), container()], "b": [reserved(""), npus(8), container(network_cards=1)]}
    findings = run_check(NAME, hosts).findings
    assert [finding.is_warning for finding in findings] == [True, False]
