"""launch-variable-misspelt."""

from __future__ import annotations

import pytest

from doctor.job import LaunchConfig
from tests.checks.launch_lines import judged

NAMES: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"NCCL_SOCKET_IFNAM": "eth0"}, {"NCCL_SOCKET_IFNAM": "NCCL_SOCKET_IFNAME"}),
    ({"NCLL_DEBUG": "INFO"}, {"NCLL_DEBUG": "NCCL_DEBUG"}),
    ({"HCCL_CONECT_TIMEOUT": "1"}, {"HCCL_CONECT_TIMEOUT": "HCCL_CONNECT_TIMEOUT"}),
    ({"MASTER_PROT": "1"}, {"MASTER_PROT": "MASTER_PORT"}),
    ({"CUDA_VISIBLE_DEVICE": "0"}, {"CUDA_VISIBLE_DEVICE": "CUDA_VISIBLE_DEVICES"}),
    ({"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "x", "OMP_NUM_THREADS": "1", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}, {}),
    ({"NCCL_SOCKET_IFNAMES": "x", "NCCL_SOCKET_IFNAME": "eth0"}, {}),
    ({"RANKS": "8", "MY_MASTER_ADDR": "x", "WORLD": "1", "NCCL_SITE_NAME": "x"}, {}),
]


@pytest.mark.parametrize(("environ", "slips"), NAMES)
def test_misspelt_variables(environ: dict[str, str], slips: dict[str, str]) -> None:
    outcome = judged("launch-variable-misspelt", LaunchConfig.from_environment(environ))
    assert {one.values["variable"]: one.values["expected"] for one in outcome.findings} == slips
