"""One cable gets one verdict: the network test and the smoke run judge the same paths by the same ratios."""

from __future__ import annotations

from random import Random

import pytest

from doctor.analysis.outliers.pairs import SLOW_END, SLOW_LINK
from doctor.net.slow_paths import slow_paths
from tests.net.test_slow_paths import measured_twice
from tests.smoke.ranks import worker
from tests.smoke.test_links import outliers_among, tournament

HOSTS = 8


def quiet(random: Random) -> float:
    return random.lognormvariate(0, 0.02)


@pytest.mark.parametrize(("ratio", "named"), [(1.35, False), (1.65, True), (3.0, True)])
def test_a_slow_link_is_one_to_both_or_to_none(ratio: float, *, named: bool) -> None:
    for seed in range(6):
        random = Random(seed)
        link = tuple(sorted(random.sample(range(HOSTS), 2)))
        speeds = measured_twice(
            HOSTS, random, quiet, lambda s, t, link=link: ratio if (min(s, t), max(s, t)) == link else 1.0
        )
        exchanges = tournament(random, HOSTS, links={(link[0], link[1]): ratio}, sigma=0.02)
        expected = [("link", link)] if named else []
        by_net = {(path.kind, path.hosts) for path in slow_paths(speeds) if path.figure == "throughput"}
        assert sorted(by_net) == expected
        assert [(outlier.kind, outlier.hosts) for outlier in outliers_among(exchanges)] == expected


@pytest.mark.parametrize(("ratio", "named"), [(1.08, False), (1.25, True), (2.0, True)])
def test_a_slow_host_is_one_to_both_or_to_none(ratio: float, *, named: bool) -> None:
    for seed in range(6):
        random = Random(seed)
        host = random.randrange(HOSTS)
        speeds = measured_twice(HOSTS, random, quiet, lambda s, t, host=host: ratio if host in (s, t) else 1.0)
        exchanges = tournament(random, HOSTS, {host: ratio}, sigma=0.02)
        expected = [("host", (host,))] if named else []
        by_net = {(path.kind, path.hosts) for path in slow_paths(speeds) if path.figure == "throughput"}
        assert sorted(by_net) == expected
        assert [(outlier.kind, outlier.hosts) for outlier in outliers_among(exchanges)] == expected


def test_a_worker_measures_again_whatever_the_judge_would_call_slow() -> None:
    suspects_from = worker()
    assert (suspects_from["SLOW_FACTOR"], suspects_from["SLOW_END_FACTOR"]) == (SLOW_LINK, SLOW_END)
