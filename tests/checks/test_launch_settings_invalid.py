"""launch-settings-invalid."""

from __future__ import annotations

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import PerHost
from doctor.engine.result import Outcome, Status
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig
from tests.checks.tables import check, said

NAME = "launch-settings-invalid"


def judged(product: str = "", **environ: str) -> Outcome:
    return evaluate_check(
        check(NAME), (), FactCache({}), {LaunchConfig: LaunchConfig.from_environment(environ, product=product)}
    )


def test_each_value_is_named_with_what_was_expected() -> None:
    assert said(judged(HCCL_CONNECT_TIMEOUT="60", HCCL_RDMA_TC="133")) == [
        "HCCL_CONNECT_TIMEOUT has an invalid value | observed 60 | expected a whole number from 120 to 7200",
        "HCCL_RDMA_TC has an invalid value | observed 133 | expected a multiple of 4 from 0 to 252",
    ]


def test_what_depends_on_the_product() -> None:
    assert judged("A1", HCCL_EXEC_TIMEOUT="20000").status is Status.FAILED
    assert judged("A2", HCCL_EXEC_TIMEOUT="20000").status is Status.PASSED
    outcome = judged(HCCL_EXEC_TIMEOUT="20000")
    assert outcome.status is Status.UNKNOWN and "HCCL_EXEC_TIMEOUT" in outcome.unknown[""].text
    assert judged(HCCL_EXEC_TIMEOUT="20000", HCCL_RDMA_SL="9").status is Status.FAILED


def test_the_hosts_say_which_product() -> None:
    products = PerHost({"n1": NpuProduct(family="A1", evidence="")})
    launch = LaunchConfig.from_environment({"HCCL_EXEC_TIMEOUT": "20000"})
    assert len(list(check(NAME).function(launch=launch, products=products))) == 1


def test_a_product_that_is_none() -> None:
    assert said(judged("B1")) == ["--product has an invalid value | observed B1 | expected one of A1, A2, A3"]


def test_healthy() -> None:
    assert judged(HCCL_CONNECT_TIMEOUT="600").status is Status.PASSED
