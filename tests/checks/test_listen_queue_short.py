from doctor.facts.gpu import GpuCards
from doctor.facts.kernel import ListenQueues
from tests.checks.npus import npus
from tests.checks.run_check import fleet, job, messages, run_check


def queue(length: int) -> ListenQueues:
    return ListenQueues(somaxconn=length, syn_backlog=4096, syncookies=1)


def expected(hosts: int, *facts: object, **environ: str) -> int:
    outcome = run_check("listen-queue-short", fleet(hosts, queue(1), *facts), job(**environ))  # type: ignore[arg-type]
    return int(outcome.findings[0].values["expected"])


def test_the_kernels_default_is_enough_for_1024_ranks() -> None:
    assert messages(run_check("listen-queue-short", fleet(128, queue(4096), npus(8)))) == []
    assert messages(run_check("listen-queue-short", fleet(129, queue(4096), npus(8)))) != []


def test_the_default_of_old_kernels_is_short_for_any_fleet() -> None:
    outcome = run_check("listen-queue-short", {"w1": [queue(4096)], "w2": [queue(128)]})
    assert messages(outcome) == [("w2", "net.core.somaxconn is 128; expected at least 256 for 16 ranks")]


def test_four_connections_a_rank_are_wanted() -> None:
    assert expected(100, npus(8)) == 3200
    assert expected(100, npus(16)) == 6400
    assert expected(100, GpuCards(pci=4, driver="x", tool=True)) == 1600


def test_a_world_size_that_is_given_wins() -> None:
    assert expected(2, npus(8), WORLD_SIZE="1000") == 4000


def test_a_host_whose_devices_are_not_known_counts_as_eight() -> None:
    assert expected(100) == 3200
