"""More ranks than this host has devices are on other hosts, too, which nothing lists."""

from __future__ import annotations

import pytest

from doctor.environment.job_context import detect
from doctor.facts.memory import device_count
from tests.checks.launch_lines import records


@pytest.mark.parametrize(
    ("environ", "devices", "is_known"),
    [
        ({"WORLD_SIZE": "16"}, 8, False),
        ({"MS_WORKER_NUM": "9"}, 8, False),
        ({"WORLD_SIZE": "8"}, 8, True),
        ({"WORLD_SIZE": "4"}, 8, True),
        ({"WORLD_SIZE": "16"}, 0, True),  # on CPUs
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "16"}, 8, True),
        ({"WORLD_SIZE": "16", "MASTER_ADDR": "localhost"}, 8, True),  # ranks that share devices, on one host
        ({"WORLD_SIZE": "16", "MASTER_ADDR": "n1"}, 8, False),
        ({"MS_WORKER_NUM": "16", "MS_SCHED_HOST": "127.0.0.1"}, 8, True),
        ({"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "16", "WORLD_SIZE": "16"}, 8, True),  # by a launcher
        ({}, 8, True),
    ],
)
def test_the_devices_of_the_one_host(environ: dict[str, str], devices: int, is_known: bool) -> None:
    (record,) = records(1, devices).values()
    assert device_count(record) == devices
    before, after = (detect(environ, devices=count).hosts_unknown for count in (0, devices))
    assert (after == before) is is_known
