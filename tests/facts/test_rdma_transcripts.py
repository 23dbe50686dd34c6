"""Ports of RDMA adapters as tools have printed them on real machines: what is unused is not accused."""

from __future__ import annotations

import json

import pytest

from doctor.engine.fact import Output
from doctor.facts.rdma import RdmaPorts
from tests.checks.looked import judged
from tests.facts.answers import said
from tests.facts.rdma_transcripts import SHOWN, Shown, adapters

CHECKS = ("rdma-port-down", "rdma-port-slow")


def read(shown: Shown) -> RdmaPorts:
    value = said(RdmaPorts, one=Output(out=json.dumps(adapters(shown.text))))
    assert isinstance(value, RdmaPorts)
    return value


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.source[-30:])
def test_a_host(shown: Shown) -> None:
    value = read(shown)
    assert tuple(name for name, port in value.ports.items() if port.is_active) == shown.ports
    assert {name for name in CHECKS if judged(name, {"w1": [value]}).findings} == shown.checks


def test_a_port_without_a_signal_is_found_where_the_other_hosts_have_one() -> None:
    """ROCm/rccl issue 1423: one of two machines that were set up alike."""
    polling, _, active = (read(shown) for shown in SHOWN if "1423" in shown.source)
    hosts = {"w1": [active], "w2": [polling], "w3": [active]}
    (finding,) = judged("rdma-port-down", hosts).findings
    assert (finding.hosts, finding.values["port"]) == (("w2",), "mlx5_7:1")
