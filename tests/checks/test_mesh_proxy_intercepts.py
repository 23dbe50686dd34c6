"""What mesh-proxy-intercepts finds."""

from __future__ import annotations

import pytest

from tests.checks.containers import container
from tests.checks.ports import taken
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "mesh-proxy-intercepts"


@pytest.mark.parametrize(
    ("mesh", "ports", "setting"),
    [
        ("Istio", (15001, 15006, 15021), 'sidecar.istio.io/inject: "false"'),
        ("Linkerd", (4140, 4143, 4191), "linkerd.io/inject: disabled"),
    ],
)
def test_a_sidecar(mesh: str, ports: tuple[int, ...], setting: str) -> None:
    pod = container(engine="kubernetes")
    outcome = run_check(NAME, {"w1": [pod, taken(*ports)], "w2": [pod, taken(29500)]})
    text = f"the proxy of {mesh} takes all TCP connections of this pod: it listens on ports {ports[0]} and {ports[1]}"
    assert messages(outcome) == [("w1", text)]
    assert setting in advice(NAME, outcome)


@pytest.mark.parametrize("ports", [(15001,), (15006,), (4140,), (4143, 15001), (29500,)])
def test_one_of_the_ports_is_no_proxy(ports: tuple[int, ...]) -> None:
    """A program of the job may take one of them."""
    assert messages(run_check(NAME, {"w1": [container(engine="kubernetes"), taken(*ports)]})) == []


def test_a_connection_is_no_listener() -> None:
    sockets = taken(15001, 15006, listening=False)
    assert messages(run_check(NAME, {"w1": [container(engine="kubernetes"), sockets]})) == []


def test_where_there_is_no_network_of_its_own() -> None:
    """On a node, or in a pod with its network, the proxies of other pods would not listen; their ports may be taken."""
    sockets = taken(15001, 15006)
    assert skipped(run_check(NAME, {"w1": [container(engine=""), sockets]})) == {"the job does not run in a container"}
    assert skipped(run_check(NAME, {"w1": [container(engine="kubernetes", network_cards=2), sockets]})) == {
        "the job's container has the network of its host"
    }
