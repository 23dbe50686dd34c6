# ruff: noqa: E501 - outputs are kept as they were printed
"""What `dcgmi diag -j` prints, before DCGM 4 and since, and what the check makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.vendor_tests import DcgmDiagnosis, DcgmHealth
from tests.checks.run_check import messages, run_check
from tests.facts.answers import read_outputs

GB10 = """{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software", "results": [
{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Fail", "warnings": [{"error_category": 8, "error_id": 29,
 "error_severity": 5, "warning": "Persistence Mode: Persistence mode for GPU 0 is disabled. Enable persistence mode by running \\"nvidia-smi -i <gpuId> -pm 1 \\" as root."}]}],
"test_summary": {"info": ["Error getting the SRAM Threshold Count for GPU 0. Status = 0. Value = 9223372036854775794. SRAM Threshold checking was skipped."], "status": "Fail"}}]}]},
"entity_groups": [{"entities": [{"device_id": "2e12", "entity_id": 0, "serial_num": "<<<NOT_SUPPORTED>>>"}], "entity_group": "GPU", "entity_group_id": 1}],
"metadata": {"Driver Version Detected": "580.82.09", "version": "4.2.3"}}"""
"""A healthy DGX Spark, DCGM 4.2.3, exit status 226: file 62458550693 of the public index."""
EIGHT = """
	WARNING: THIS SHOULD NOT HAPPEN
{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
 {"name": "Denylist", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "PASS"}]}, null,
 {"name": "NVML Library", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "PASS"}]}, null,
 {"name": "Page Retirement/Row Remap", "results": [{"gpu_ids": "0,1,2,3,4,5,6,7", "status": "PASS"}]}]}], "version": "3.1.0"}}"""
"""Eight GPUs, DCGM 3.1: NVIDIA/DCGM, nvvs/tests (file 43597584485)."""


def one(status: str, **more: Any) -> dict[str, Any]:
    return {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3, "status": status, **more}


def new(*results: dict[str, Any], name: str = "software") -> str:
    tests = [{"name": name, "results": list(results), "test_summary": {"status": "Fail"}}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}})


def old(*warnings: Any, status: str = "Fail", name: str = "Page Retirement/Row Remap") -> str:
    tests = [{"name": name, "results": [{"gpu_ids": "3", "status": status, "warnings": list(warnings)}]}]
    return json.dumps({"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}})


def read(text: str, code: int = 0) -> Any:
    return read_outputs(DcgmDiagnosis, one=Output(out=text, code=code))


def found(text: str, code: int = 0) -> list[tuple[str, str]]:
    return messages(run_check("dcgm-diagnosis-failed", {"w1": [read(text, code)]}))


def test_hosts_that_are_well() -> None:
    """A setting of the host that DCGM fails is none of its devices' faults: checks of their own judge it."""
    assert found(GB10, 226) == []
    assert found(EIGHT.replace("WARNING: THIS SHOULD NOT HAPPEN", "Successfully ran diagnostic for group.")) == []
    assert found(old("Persistence mode for GPU 3 is disabled.", name="Persistence Mode"), 1) == []
    skipped = new(one("Skip"), one("Pass"))
    assert found(skipped) == []


REMAP = "GPU 3 had uncorrectable memory errors and row remapping failed."
"""DCGM_FR_ROW_REMAP_FAILURE_MSG of dcgmlib/dcgm_errors.h."""


@pytest.mark.parametrize(
    "text",
    [
        new(one("Fail", warnings=[{"error_id": 84, "error_severity": 2, "warning": REMAP}])),
        old({"error_id": 84, "error_severity": 2, "warning": REMAP}),
        old(REMAP),
    ],
)
def test_a_failure_names_the_gpu(text: str) -> None:
    ((host, message),) = found(text, 205)
    assert (host, "GPU 3: " + REMAP in message) == ("w1", True)


@pytest.mark.parametrize(("severity", "warns"), [(1, True), (2, False), (4, True), (6, False), (None, True)])
def test_what_dcgm_wants_isolated_or_reset_is_an_error(severity: int | None, warns: bool) -> None:
    (finding,) = run_check(
        "dcgm-diagnosis-failed",
        {"w1": [read(new(one("Fail", warnings=[{"error_severity": severity, "warning": REMAP}])), 205)]},
    ).findings
    assert finding.is_warning == warns


def test_a_test_without_devices_has_its_summary() -> None:
    tests = [{"name": "software", "test_summary": {"status": "Fail", "warnings": [{"warning": "no library"}]}}]
    text = json.dumps({"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}})
    assert found(text, 205) == [("w1", "DCGM's test software failed: no library")]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (new(one("Pass")), 1),  # a failure that its report does not show
        (new(one("Pass")), -9),
        (EIGHT, 0),  # a complaint beside the report
        (json.dumps({"DCGM GPU Diagnostic": {"version": "4.2.3"}}), 1),
        (json.dumps({"DCGM Diagnostic": {"test_categories": []}}), 0),
        ("Error: Diagnostic could not be run because of a timeout.", 1),
        (new(one("Pass"))[:60], 0),
        ("", 0),
        ("[1, 2]{}", 0),
    ],
)
def test_what_is_not_understood_is_unknown(text: str, code: int) -> None:
    assert isinstance(read(text, code), Unreadable)


@pytest.mark.parametrize("status", ["NotRun", "Inconclusive", "", None])
def test_a_status_that_is_not_known_is_no_pass(status: str | None) -> None:
    assert read(new(one("Pass"), one(status or ""))).unread


@pytest.mark.parametrize(
    "words",
    [
        "Error: unable to establish a connection to the specified host: localhost",
        "Error: Unable to run diagnostic on unsupported GPU 0.",
        "Error: Unable to complete diagnostic for group 0. Return: (-36) A DCGM diagnostic is already running.",
        "Error: Unable to complete diagnostic for group 0. Return: (-31) Insufficient privileges to run this request.",
    ],
)
def test_a_host_on_which_dcgm_does_not_run(words: str) -> None:
    assert type(read(words, 1)) is Absent


def test_health_that_is_well_and_fails_is_unknown() -> None:
    healthy = '{"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}'
    assert isinstance(read_outputs(DcgmHealth, one=Output(out=healthy, code=1)), Unreadable)
    assert read_outputs(DcgmHealth, one=Output(out=healthy)).overall == "Healthy"
