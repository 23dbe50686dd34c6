"""Ports of RDMA adapters as tools have printed them on real machines: what is unused is not accused."""

from __future__ import annotations

import json

import pytest

from doctor.engine.fact import Output
from doctor.facts.rdma import RdmaPorts
from tests.checks.run_check import run_check
from tests.facts.answers import read_outputs
from tests.facts.rdma_transcripts import TOOL_OUTPUTS, ToolOutput, adapters

CHECKS = ("rdma-port-down", "rdma-port-slow")


def read(tool_output: ToolOutput) -> RdmaPorts:
    value = read_outputs(RdmaPorts, one=Output(out=json.dumps(adapters(tool_output.text))))
    assert isinstance(value, RdmaPorts)
    return value


@pytest.mark.parametrize("tool_output", TOOL_OUTPUTS, ids=lambda displayed: displayed.source[-30:])
def test_a_host(tool_output: ToolOutput) -> None:
    value = read(tool_output)
    assert tuple(name for name, port in value.ports.items() if port.is_active) == tool_output.ports
    assert {name for name in CHECKS if run_check(name, {"w1": [value]}).findings} == tool_output.checks


def test_a_port_without_a_signal_is_found_where_the_other_hosts_have_one() -> None:
    """ROCm/rccl issue 1423: one of two machines that were set up alike."""
    polling, _, active = (read(tool_output) for tool_output in TOOL_OUTPUTS if "1423" in tool_output.source)
    hosts = {"w1": [active], "w2": [polling], "w3": [active]}
    (finding,) = run_check("rdma-port-down", hosts).findings
    assert (finding.hosts, finding.values["port"]) == (("w2",), "mlx5_7:1")
