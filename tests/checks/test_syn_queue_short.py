from doctor.facts.kernel import ListenQueues
from tests.checks.npus import npus
from tests.checks.run_check import fleet, job, messages, run_check


def queue(length: int, cookies: int = 1) -> ListenQueues:
    return ListenQueues(somaxconn=65535, syn_backlog=length, syncookies=cookies)


def test_a_queue_for_all_ranks_is_well() -> None:
    assert messages(run_check("syn-queue-short", fleet(2, queue(256), npus(8)))) == []
    assert messages(run_check("syn-queue-short", fleet(128, queue(4096), npus(8)))) == []


def test_a_short_queue() -> None:
    outcome = run_check("syn-queue-short", {"w1": [queue(4096)], "w2": [queue(128)]})
    assert messages(outcome) == [("w2", "net.ipv4.tcp_max_syn_backlog is 128; expected at least 256 for 16 ranks")]


def test_without_cookies_the_last_quarter_does_not_count() -> None:
    outcome = run_check("syn-queue-short", {"w1": [queue(341, 0)], "w2": [queue(342, 0)]})
    assert [(finding.hosts, finding.values["expected"]) for finding in outcome.findings] == [(("w1",), 342)]


def test_large_jobs_want_more() -> None:
    outcome = run_check("syn-queue-short", {"w1": [queue(8192)]}, job(WORLD_SIZE="4096"))
    assert outcome.findings[0].values["expected"] == 16384
