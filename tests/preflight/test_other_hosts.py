"""More ranks than this host has devices are on other hosts, too, which nothing lists."""

from __future__ import annotations

import pytest

from doctor.preflight.master import more_ranks_than_devices
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
        ({}, 8, True),
    ],
)
def test_the_devices_of_the_one_host(environ: dict[str, str], devices: int, is_known: bool) -> None:
    assert (more_ranks_than_devices(records(1, devices).values(), environ) == "") is is_known
