"""What ascend-dmi saves and dcgmi prints, as their makers document or write it."""

from __future__ import annotations

import json
import textwrap
from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.gpu import GpuInventory
from doctor.facts.nvlink import NvLinks
from doctor.facts.vendor_tests import AscendDiagnosis, DcgmHealth, DiagnosisGroup, GpudState, GpudStates
from tests.checks.run_check import messages, run_check
from tests.facts.answers import read_outputs

BANDWIDTH = {
    "DiagnosisItems": [
        {
            "group_name": "Hardware",
            "group_results": "FAIL",
            "sub_items": [
                {
                    "item_info": [
                        "d2d bandwidth diagnosis failed on device 0 with bandwidth 751.0634765625 / 4999",
                        "d2h bandwidth diagnosis failed on device 0 with bandwidth 28.201079722538424 / 30",
                    ],
                    "item_info_element": [{"device_id": "0", "threshold_info": [{"test_item": "d2d"}]}],
                }
            ],
        }
    ]
}
"""https://www.hiascend.com/document/detail/en/mindcluster/730/toolbox/toolboxug/toolboxug_0204.html, shortened."""
REPLAYS = {
    "body": {
        "Overall Health": {"value": "Warning"},
        "GPU": {
            "children": {
                "3": {
                    "value": "Warning",
                    "children": {
                        "Errors": {
                            "children": {"PCIe system": {"value": "Warning", "overflow": ["9 replays", "a minute"]}}
                        }
                    },
                }
            }
        },
    },
    "header": ["Health Monitor Report"],
}
"""As GenerateOutputFromResponse of dcgmi/Health.cpp and DcgmiOutput.h of github.com/NVIDIA/DCGM write it."""


def saved(text: str, age: float = 60.0) -> Any:
    return read_outputs(AscendDiagnosis, one=Output(out=json.dumps({"age": age, "text": text})))


def test_a_failed_diagnosis() -> None:
    (group,) = saved(json.dumps(BANDWIDTH, indent=4)).groups
    assert (group.name, group.result, len(group.failures)) == ("Hardware", "FAIL", 2)
    assert group.failures[1].endswith("28.201079722538424 / 30")


def test_a_result_with_text_around_it_and_one_without_details() -> None:
    entry = saved('Result:\n{"DiagnosisItems": [{"group_name": "Software", "group_results": "PASS"}]}\n')
    assert entry.groups == (DiagnosisGroup("Software", "PASS", ()),)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"DiagnosisItems": 3}', '{"DiagnosisItems": [[]]}', "[" * 5000])
def test_what_is_no_result_is_unreadable(text: str) -> None:
    assert isinstance(saved(text), Unreadable)


def test_health_watches() -> None:
    health = read_outputs(DcgmHealth, one=Output(out=json.dumps(REPLAYS)))
    assert (health.overall, health.problems) == ("Warning", (("GPU 3", "Warning", "PCIe system: 9 replays a minute"),))
    well = {"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}
    assert read_outputs(DcgmHealth, one=Output(out=json.dumps(well))).problems == ()


def incidents(*sentences: str, system: str = "NVLINK system") -> DcgmHealth:
    """As dcgmi joins the sentences of one system, and breaks the text behind the last word that fits 54 characters."""
    lines = textwrap.wrap(", ".join(sentences), 54)
    state = {"value": "Failure", "overflow": lines}
    entity = {"value": "Failure", "children": {"Errors": {"children": {system: state}}}}
    body = {"Overall Health": {"value": "Failure"}, "GPU": {"children": {"0": entity}}}
    return read_outputs(DcgmHealth, one=Output(out=json.dumps({"body": body, "header": []})))  # type: ignore[no-any-return]


DOWN = tuple(f"GPU 0's NvLink link {number} is currently down" for number in range(18))
CRC = "Detected 9 CRC NvLink errors on GPU 0's NVLink which exceeds threshold of 1"
IMEX = (
    "IMEX daemon status is -3 (not READY) Check IMEX installation, configuration, domain and daemon status, and "
    "network connectivity."
)


def test_each_incident_of_a_system_is_one_problem() -> None:
    health = incidents(*DOWN, CRC, IMEX)
    assert [words for _, _, words in health.problems] == [f"NVLINK system: {text}" for text in (*DOWN, CRC, IMEX)]


def test_an_incident_that_is_no_fault_hides_none_beside_it() -> None:
    """The sentences of dcgmlib/dcgm_errors.h of github.com/NVIDIA/DCGM, beside each other in one text."""
    bare = NvLinks(active={0: 0}, inactive={}, products={0: "NVIDIA A100 80GB PCIe"})
    well = {"w1": [incidents(*DOWN, IMEX), bare]}
    assert messages(run_check("dcgm-unhealthy", well)) == []
    sick = {"w1": [incidents(*DOWN[:3], CRC, IMEX), bare]}
    assert messages(run_check("dcgm-unhealthy", sick)) == [("w1", f"DCGM: GPU 0: NVLINK system: {CRC}")]
    sxm = NvLinks(active={0: 0}, inactive={}, products={0: "NVIDIA A100-SXM4-80GB"})
    ((_, text),) = messages(run_check("dcgm-unhealthy", {"w1": [incidents(*DOWN), sxm]}))
    assert text.endswith("link 7 is currently down and 10 more")


NO_WATCHES = "Error: Health watches not enabled. Please enable watches. \n"
NO_ENGINE = "Error: unable to establish a connection to the specified host: localhost\n"


@pytest.mark.parametrize(("text", "code"), [(NO_WATCHES, 255), (NO_ENGINE, 1)])
def test_no_watches_are_no_fault(text: str, code: int) -> None:
    """The second: https://github.com/NVIDIA/DCGM, dcgmi without nv-hostengine."""
    assert type(read_outputs(DcgmHealth, one=Output(out=text, code=code))) is Absent


@pytest.mark.parametrize("text", ["", "{}", "Segmentation fault", '{"body": 3}', '{"body": {"Overall Health": 1}}'])
def test_other_answers_are_unreadable(text: str) -> None:
    assert isinstance(read_outputs(DcgmHealth, one=Output(out=text, code=1)), Unreadable)


VIRTUAL = """<?xml version="1.0" ?>
<nvidia_smi_log>
	<driver_version>580.105.08</driver_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:00:07.0">
		<product_name>NVIDIA L40S-2Q</product_name>
		<vgpu_software_licensed_product>
			<licensed_product_name>NVIDIA RTX Virtual Workstation</licensed_product_name>
			<license_status>STATUS</license_status>
		</vgpu_software_licensed_product>
		<fb_memory_usage>
			<total>2048 MiB</total>
		</fb_memory_usage>
	</gpu>
</nvidia_smi_log>
"""
"""github.com/kernel/hypeman, "trimmed from real output" (text 60985397761)."""


@pytest.mark.parametrize("status", ["Licensed (Expiry: 2026-7-7 16:1:44 GMT)", "Unlicensed (Restricted)"])
def test_the_licence_of_a_virtual_gpu(status: str) -> None:
    inventory = read_outputs(GpuInventory, one=Output(out=VIRTUAL.replace("STATUS", status)))
    assert isinstance(inventory, GpuInventory)
    (gpu,) = inventory.gpus
    assert (gpu.name, gpu.license, gpu.memory) == ("NVIDIA L40S-2Q", status, 2048)


XID_48 = """[{"component": "accelerator-nvidia-error-xid", "states": [{"time": null, "name": "error_xid",
"health": "Unhealthy", "reason": "XID 48 (Double Bit ECC Error) detected on GPU PCI:0000:6b:00 UUID:GPU-c44c6e5f",
"suggested_actions": {"description": "", "repair_actions": ["HARDWARE_INSPECTION"]}}]},
{"component": "accelerator-nvidia-memory", "states": [{"time": "2025-12-05T04:46:00Z", "component":
"accelerator-nvidia-memory", "name": "accelerator-nvidia-memory", "health": "Healthy",
"reason": "all 1 GPU(s) were checked, no memory issue found"}]}]"""
"""leptonai/gpud issue 1072 and pull request 1170."""


def gpud(text: str, status: int = 200) -> Any:
    return read_outputs(GpudStates, one=Output(out=json.dumps({"running": True, "status": status, "text": text})))


def test_states_of_gpud() -> None:
    reason = "XID 48 (Double Bit ECC Error) detected on GPU PCI:0000:6b:00 UUID:GPU-c44c6e5f"
    assert gpud(XID_48).problems == (
        GpudState("accelerator-nvidia-error-xid", "Unhealthy", reason, ("HARDWARE_INSPECTION",)),
    )


def test_older_states_and_those_without_an_action() -> None:
    # leptonai/gpud pull request 56: before there was a word for it.
    old = [{"component": "accelerator-nvidia-gpm", "states": [{"name": "gpm", "healthy": True}]}]
    assert gpud(json.dumps(old)).problems == ()
    old[0]["states"] = [{"name": "gpm", "healthy": False}]
    assert [problem.health for problem in gpud(json.dumps(old)).problems] == ["Unhealthy"]
    ignored = {"health": "Unhealthy", "suggested_actions": {"repair_actions": ["IGNORE_NO_ACTION_REQUIRED"]}}
    assert gpud(json.dumps([{"component": "x", "states": [ignored]}])).problems == ()


@pytest.mark.parametrize("text", ["", "{", "{}x", "3", "[3]", '[{"states": [{"health": "Unhealthy"}]}]', "[" * 5000])
def test_what_is_no_list_of_states_is_unreadable(text: str) -> None:
    assert isinstance(gpud(text), Unreadable)


def test_gpud_that_does_not_run_or_fails() -> None:
    assert isinstance(read_outputs(GpudStates, one=Output(out='{"running": false}')), Absent)
    assert isinstance(gpud("Internal Server Error", 500), Unreadable)
