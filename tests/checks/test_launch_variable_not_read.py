"""What launch-variable-not-read finds."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Fact
from doctor.engine.result import Outcome, Status
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion
from doctor.job.variable_names import documented_variables
from doctor.job.variable_versions import first_releases, not_read
from tests.checks.run_check import job, run_check

NAME = "launch-variable-not-read"


def python(nccl: str = "", torch: str = "") -> PythonEnv:
    packages = {"nvidia_nccl_cu12": nccl, "torch": torch}
    return PythonEnv(
        path="/usr/bin/python3",
        version="3.10.12",
        packages={name: version for name, version in packages.items() if version},
        finds_torch=bool(torch),
    )


def look(nccl: str = "", torch: str = "", **environ: str) -> Outcome:
    return run_check(NAME, {"w1": [python(nccl, torch)], "w2": [python(nccl, torch)]}, job(**environ))


@pytest.mark.parametrize(
    ("nccl", "torch", "variable", "expected", "replacement"),
    [
        ("2.14.3", "2.0.1", "NCCL_NVLS_ENABLE", "NCCL 2.17.1 or later", ""),
        ("2.21.5", "2.5.1+cu124", "NCCL_RINGS", "NCCL before 2.5.6", "NCCL_GRAPH_FILE"),
        ("2.21.5", "2.5.1", "NCCL_IB_CUDA_SUPPORT", "NCCL before 2.4.2", "NCCL_NET_GDR_LEVEL"),
        ("2.21.5", "", "NCCL_SOCKET_RETRY_CNT", "NCCL 2.24.3 or later", ""),
        ("", "2.1.0+cu118", "TORCH_NCCL_BLOCKING_WAIT", "PyTorch 2.2 or later", "NCCL_BLOCKING_WAIT"),
    ],
)
def test_a_variable_of_another_version(nccl: str, torch: str, variable: str, expected: str, replacement: str) -> None:
    (finding,) = look(nccl, torch, **{variable: "1"}).findings
    assert finding.hosts == ("w1", "w2")
    assert (finding.values["variable"], finding.values["expected"]) == (variable, expected)
    assert finding.values["replacement"] == replacement


@pytest.mark.parametrize(
    ("facts", "variable", "expected"),
    [
        ([PythonEnv("/p", "3.11.7", {"torch_npu": "2.1.0.post3"}, finds_torch=True)],
         "TORCH_HCCL_ZERO_COPY", "torch_npu"),
        ([python(), CannVersion("8.5.0", "/usr/local/Ascend", {})], "HCCL_ALG_MULTIPLE_DIMENSION_SPLIT_RATIO", "HCCL"),
    ],
)  # fmt: skip
def test_libraries_of_npus(facts: list[Fact], variable: str, expected: str) -> None:
    (finding,) = run_check(NAME, {"w1": facts}, job(**{variable: "1"})).findings
    assert (finding.values["variable"], finding.values["library"]) == (variable, expected)


@pytest.mark.parametrize(
    ("nccl", "torch", "environ"),
    [
        ("2.21.5", "2.5.1", {"NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5"}),
        ("2.17.1", "2.1.0", {"NCCL_NVLS_ENABLE": "0"}),
        ("2.21.5", "2.2.0", {"TORCH_NCCL_BLOCKING_WAIT": "1"}),
        ("2.21.5", "2.5.1", {"NCCL_ASYNC_ERROR_HANDLING": "1"}),  # PyTorch's old name: still read
        ("2.18.1", "2.1.0", {"TORCH_NCCL_BLOCKING_WAIT": "1", "NCCL_BLOCKING_WAIT": "1"}),  # for both versions
        ("2.99", "2.99", {"NCCL_OF_THE_FUTURE": "1"}),
        ("nightly", "2.6.0a0+git1234", {"NCCL_RINGS": "0 1"}),
        ("", "", {"TORCH_NCCL_BLOCKING_WAIT": "1"}),
    ],
)
def test_what_is_read_or_not_known(nccl: str, torch: str, environ: dict[str, str]) -> None:
    assert look(nccl, torch, **environ).findings == ()


def test_without_a_version_nothing_is_said() -> None:
    assert look().status is Status.SKIPPED


def test_every_name_of_the_table_is_a_documented_one() -> None:
    assert first_releases("NCCL").keys() <= documented_variables()
    assert len(first_releases("NCCL")) > 150
    assert list(not_read(dict.fromkeys(first_releases("NCCL"), "1"), "2.30.7", "2.10.0")) == []
