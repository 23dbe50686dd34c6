"""Three values, for every tool: absent, read and failed."""

from __future__ import annotations

import pytest

from doctor.facts.reported_value import value_state


@pytest.mark.parametrize(
    "text",
    [
        "",
        "N/A",
        "[N/A]",
        "NA",
        "-",
        "Not Supported",
        "[Not Supported]",
        "None",
        "Not Available",
        None,
        "[Requested functionality has been deprecated]",
        "AMDSMI_STATUS_NOT_SUPPORTED",
        "null",
        "not active",
    ],
)
def test_a_device_without_such_a_value(text: str | None) -> None:
    assert value_state(text) == "absent"


@pytest.mark.parametrize(
    "text",
    [
        "Unknown Error",
        "[Unknown Error]",
        "ERR!",
        "[GPU requires reset]",
        "[GPU is lost]",
        "Timeout",
        "ERROR",
        "AMDSMI_STATUS_FILE_ERROR",
        'Failed to query "health" result.',
        "Insufficient Permissions",
        "Corrupted infoROM",
        "AMDSMI_STATUS_IO",
        "AMDSMI_STATUS_UNEXPECTED_DATA",
        "AMDSMI_STATUS_NO_PERM",
        "Driver Not Loaded",
        "No Data",
    ],
)
def test_a_value_that_could_not_be_read(text: str) -> None:
    assert value_state(text) == "failed"


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "81559 MiB",
        "OK",
        "Warning",
        "NOK",
        "GPU Reset",
        "Unknown",
        "Enabled",
        "Insufficient Resources now",
        "No",
        "In Progress",
        "Failed partition",
        "errors: 3",
        "Not Active now",
        "Not Started",
        "Error count 0",
    ],
)
def test_what_is_a_value(text: str) -> None:
    assert value_state(text) == "read"


def test_a_long_text_takes_no_time() -> None:
    assert value_state("query " + "x failed " * 100_000) in ("read", "failed")
