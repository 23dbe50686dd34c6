"""`doctor diagnose --check`: the checks of the cause, on the hosts that it names alone, and their answer now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from doctor.diagnose.diagnosis import Cause, Culprit
from doctor.diagnose.suspects import suspect_hosts
from doctor.environment.inventory import Inventory
from tests.conftest import prepared
from tests.diagnose.test_logs_of_hosts import Answer, of_hosts
from tests.hosts.fleet import Fleet

DOWN = (
    "[ERROR] HCCP(38011,python):2026-11-21-12:45:32.997.682 [ra_hdc_rdma.c:1199]tid:38011,ra_hdc_rdev_init(1199) : "
    "[init][ra_hdc_rdev]ra hdc message process failed ret(-67) phy_id(0)\n"
)
WAITED = (
    "[ERROR] HCCL(114725,python3):2026-11-21-12:47:19.687.450 [hccl_socket_manager.cc:778] "
    "[117514][Wait][LinkEstablish]wait socket establish timeout, role[0] rank[1] timeout[130]\n"
)


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    created_fleet = make_fleet(4, prepared("A2"), subnet="10.78.0.0/16", shm="4g")
    for rank, text in enumerate([WAITED, DOWN]):
        created_fleet.enter(
            created_fleet.hosts[rank], f"mkdir -p /root/ascend/log && cat >/root/ascend/log/rank_{rank}.log", input=text
        )
    yield created_fleet
    created_fleet.down()


def checked(answer: Answer) -> dict[str, Any]:
    return dict(answer.cause["checked"])


@pytest.mark.hosts
def test_the_state_of_the_suspect_now_is_joined_to_the_cause(fleet: Fleet) -> None:
    suspect = fleet.hosts[1]
    fleet.enter(suspect, "echo DOWN >/run/npu/4/link")
    fleet.enter(fleet.hosts[2], "echo DOWN >/run/npu/2/link")
    answer = of_hosts(fleet, "--check", "--since", "1d")
    assert (answer.code, answer.cause["signature"], answer.cause["hosts"]) == (10, "ej0002-nic-down", [suspect])
    now = checked(answer)
    assert now["hosts"] == [suspect]
    (down,) = [item for item in now["findings"] if item["check"] == "device-link-down"]
    assert (down["hosts"], down["severity"]) == ([suspect], "error") and "NPU 4" in down["text"]
    assert not {fleet.hosts[0], fleet.hosts[2]} & {host for item in now["findings"] for host in item["hosts"]}
    requested = {item["check"] for item in (*now["findings"], *now["unknown"], *now["skipped"])} | set(now["passed"])
    assert requested - {"host-unreachable"} <= set(answer.cause["checks"])


@pytest.mark.hosts
def test_a_suspect_that_is_well_now_is_said_to_pass(fleet: Fleet) -> None:
    fleet.enter(fleet.hosts[1], "echo UP >/run/npu/4/link")
    now = checked(of_hosts(fleet, "--check", "--since", "1d"))
    assert "device-link-down" in now["passed"] and not now["findings"]


@pytest.mark.parametrize(
    ("named", "hosts", "suspects"),
    [
        ("n2", ("n1", "n2", "n3"), ("n2",)),
        ("N2.cluster", ("n1", "n2"), ("n2",)),
        ("n2", ("n2.a", "n2.b"), ()),
        ("n9", ("n1", "n2"), ()),
        ("127.0.0.1", ("localhost", "n2"), ("localhost",)),
        ("", ("n1",), ()),
        ("-oProxyCommand=x", ("n1",), ()),
    ],
)
def test_a_log_names_no_host_that_the_user_has_not_named(
    named: str, hosts: tuple[str, ...], suspects: tuple[str, ...]
) -> None:
    cause = Cause("npu-oom", "local fault", "certain", (Culprit(host=named),), "", ())
    assert suspect_hosts(cause, Inventory(hosts, "")) == suspects
