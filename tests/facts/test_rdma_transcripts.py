"""Ports of RDMA adapters as tools have printed them on real machines: what is unused is not accused."""

from __future__ import annotations

import json

import pytest

from doctor.engine.fact import Output
from doctor.facts.rdma import RdmaPorts
from tests.checks.run_check import run_check
from tests.facts.answers import read_outputs
from tests.facts.rdma_transcripts import GCM, TOOL_OUTPUTS, ToolOutput, adapters, gcm_host

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


@pytest.mark.parametrize(
    ("text", "check"),
    [
        (gcm_host("100"), "rdma-port-slow"),  # learn_ib_intf_bad_rate.json
        (gcm_host(numbers=(0, 1, 12, 3, 6, 7, 8, 9)), "rdma-devices-differ"),  # learn_ib_misbound_if.json
    ],
)
def test_a_host_of_gcm_among_three_that_are_well(text: str, check: str) -> None:
    hosts = {name: [read(ToolOutput(GCM, gcm_host(), ()))] for name in ("w1", "w2", "w3")}
    hosts["w4"] = [read(ToolOutput(GCM, text, ()))]
    found = {
        name: run_check(name, hosts).findings for name in ("rdma-port-down", "rdma-port-slow", "rdma-devices-differ")
    }
    assert {name for name, findings in found.items() if findings} == {check}
    assert {finding.hosts for finding in found[check]} == {("w4",)}
