"""What container-hccn-conf-missing finds."""

from __future__ import annotations

from tests.checks.containers import container, npus, place
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "container-hccn-conf-missing"
CONF = ("/etc/hccn.conf",)


def test_the_host_has_it_and_the_container_does_not() -> None:
    outcome = run_check(NAME, {"w1": [container(*npus(0)), place(*npus(0), files=CONF)]})
    assert messages(outcome) == [("w1", "the host has /etc/hccn.conf, and the container does not")]
    assert "-v /etc/hccn.conf:/etc/hccn.conf:ro" in advice(NAME, outcome)


def test_both_or_neither() -> None:
    assert messages(run_check(NAME, {"w1": [container(*npus(0), files=CONF), place(files=CONF)]})) == []
    assert messages(run_check(NAME, {"w1": [container(*npus(0)), place()]})) == []


def test_where_it_does_not_apply() -> None:
    inside = container(*npus(0))
    same = place(engine="docker", mount_namespace=inside.mount_namespace)
    assert "--within" in next(iter(skipped(run_check(NAME, {"w1": [inside, same]}))))
    assert skipped(run_check(NAME, {"w1": [container(), place(files=CONF)]})) == {"the container has no NPU"}
    no_container = container(engine="")
    assert skipped(run_check(NAME, {"w1": [no_container, place()]})) == {"the job does not run in a container"}
