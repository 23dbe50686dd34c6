"""launch-size-wrong."""

from __future__ import annotations

import pytest

from doctor.engine.result import Status
from doctor.job import LaunchConfig
from tests.checks.launch_lines import config, run_check
from tests.checks.tables import list_messages

SIZES: list[tuple[str, int, int, list[str]]] = [
    ("torchrun --nnodes 2 --nproc-per-node 8 t.py", 2, 8, []),
    ("torchrun --nnodes 2:4 --rdzv-backend c10d --nproc-per-node 8 t.py", 2, 8, []),
    ("torchrun --nnodes 2:4 t.py", 2, 8, ["the launch line is for 4 hosts, and there are only 2 hosts"]),
    ("torchrun --nnodes 2 --nproc-per-node 8 t.py", 4, 8, []),
    ("torchrun --nnodes $N t.py", 2, 8, []),
    ("srun -N 2 torchrun --nnodes 2 t.py", 2, 0, []),
    ("python train.py", 2, 8, []),
    ("torchrun --nnodes 4 t.py", 3, 0, ["the launch line is for 4 hosts, and there are only 3 hosts"]),
    ("mpirun -H a,b,c t", 2, 0, ["the launch line is for 3 hosts, and there are only 2 hosts"]),
    ("msrun --worker_num 16 t.py", 1, 8, ["the launch line is for 2 hosts, and there are only 1 host"]),
    ("torchrun --nnodes 1 --nproc-per-node 9 t.py", 1, 8, ["the launch line starts 9 ranks on a host with 8 devices"]),
]


@pytest.mark.parametrize(("line", "hosts", "devices", "messages"), SIZES)
def test_the_size_of_the_launch(line: str, hosts: int, devices: int, messages: list[str]) -> None:
    outcome = run_check("launch-size-wrong", config(line), hosts, devices)
    assert [text.partition(" | ")[0] for text in list_messages(outcome)] == messages
    assert outcome.status is (Status.FAILED if messages else Status.PASSED)


def test_without_a_launch_line_there_is_nothing_to_judge() -> None:
    assert run_check("launch-size-wrong", LaunchConfig()).status is Status.SKIPPED


FEWER = ": the rest wait in vain, unless they are spares"


@pytest.mark.parametrize(
    ("env", "each", "hosts", "messages"),
    [
        ({"WORLD_SIZE": "16"}, 8, 2, []),
        ({"WORLD_SIZE": "8"}, 8, 2, ["WORLD_SIZE is 8, and the hosts start 16" + FEWER]),
        ({"WORLD_SIZE": "2"}, 1, 3, ["WORLD_SIZE is 2, and the hosts start 3" + FEWER]),
        ({"WORLD_SIZE": "2"}, 8, 2, []),
        ({"WORLD_SIZE": "12"}, {"n0": 8, "n1": 4}, 2, []),
        ({"WORLD_SIZE": "16"}, 8, 1, []),
        ({"WORLD_SIZE": "2"}, 8, 1, []),
        ({"WORLD_SIZE": "15"}, 8, 1, ["WORLD_SIZE is 15, and each host starts 8"]),
        ({"PADDLE_TRAINERS_NUM": "17"}, 8, 1, ["PADDLE_TRAINERS_NUM is 17, and each host starts 8"]),
        ({"WORLD_SIZE": "16"}, {"n0": 1, "n1": 1}, 2, []),
        ({"WORLD_SIZE": "15"}, 8, 2, ["WORLD_SIZE is 15, and the hosts start 16"]),
        ({"RANK_SIZE": "33"}, 8, 4, ["RANK_SIZE is 33, and the hosts start 32"]),
        ({"MS_WORKER_NUM": "13"}, {"n0": 8, "n1": 4}, 2, ["MS_WORKER_NUM is 13, and the hosts start 12"]),
        (
            {"WORLD_SIZE": "16", "RANK_SIZE": "24"},
            8,
            2,
            ["RANK_SIZE is 24, and the hosts start 16"],
        ),
    ],
)
def test_a_size_in_the_environment(
    env: dict[str, str], each: int | dict[str, int], hosts: int, messages: list[str]
) -> None:
    launch = LaunchConfig.from_environment(environ=env, ranks_per_host=each)
    outcome = run_check("launch-size-wrong", launch, hosts, 0)
    assert [text.partition(" | ")[0] for text in list_messages(outcome)] == messages
    assert [finding.is_warning for finding in outcome.findings] == [
        FEWER in message or hosts == 1 for message in messages
    ]
