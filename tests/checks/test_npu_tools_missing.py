"""What npu-tools-missing finds."""

from __future__ import annotations

from tests.checks.containers import place
from tests.checks.devices import inventory, of, skipped

look = of("npu_tools_missing")


def test_a_host_with_both_tools() -> None:
    assert look(inventory()) == []


def test_each_missing_tool_is_named() -> None:
    (finding,) = look(inventory(tools=("npu-smi",)))
    assert finding.values["missing"] == ["hccn_tool"]
    assert str(finding) == "hccn_tool not installed, on a host with 8 NPUs"
    (finding,) = look(inventory((), pci_count=8, tools=()))
    assert finding.values["missing"] == ["npu-smi", "hccn_tool"]
    assert finding.values["npus"] == 8


def test_a_tool_without_an_npu_misses_nothing() -> None:
    assert look(inventory((), tools=("npu-smi",))) == []


def test_a_container_need_not_have_them() -> None:
    assert "the container was not given hccn_tool" in skipped(
        look, inventory(tools=("npu-smi",)), place(engine="docker")
    )
    assert look(inventory(), place(engine="docker")) == []


def test_an_inference_card_has_no_network_port() -> None:
    assert look(inventory(tools=("npu-smi",), inference=True), None) == []
    (finding,) = look(inventory(tools=("hccn_tool",), inference=True), None)
    assert finding.values["missing"] == ["npu-smi"]
