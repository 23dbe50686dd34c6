"""What torch-cuda-too-new finds."""

from __future__ import annotations

import msgspec
import pytest

from doctor.facts.gpu import Gpu
from doctor.facts.python_env import PythonEnv
from tests.checks.gpu_hosts import gpus
from tests.checks.run_check import messages, run_check, skipped


def python(compat: bool = False, **packages: str) -> PythonEnv:
    return PythonEnv(path="/p", version="3.11.7", packages=packages, finds_torch=True, has_cuda_compat=compat)


@pytest.mark.parametrize(
    "env",
    [
        python(torch="2.6.0+cu124"),
        python(torch="2.6.0+cu118"),
        python(torch="2.8.0", nvidia_cuda_runtime_cu12="12.8.90"),
        python(compat=True, torch="2.9.0", nvidia_cuda_runtime="13.0.48"),
    ],
)
def test_the_same_major_version_an_older_one_or_cuda_compat(env: PythonEnv) -> None:
    assert messages(run_check("torch-cuda-too-new", {"w1": [env, gpus()]})) == []


@pytest.mark.parametrize("env", [python(torch="2.9.0+cu130"), python(torch="2.9.0", nvidia_cuda_runtime="13.0.48")])
def test_a_newer_major_version(env: PythonEnv) -> None:
    outcome = run_check("torch-cuda-too-new", {"w1": [env, gpus()]})
    assert messages(outcome) == [
        ("w1", "torch is built for CUDA 13.0; the driver 550.54.15 supports CUDA 12.4"),
    ]
    assert outcome.findings[0].values["wheel"] == "cu124"


def test_torch_without_cuda_and_drivers_that_report_none() -> None:
    assert skipped(run_check("torch-cuda-too-new", {"w1": [python(torch="2.6.0+cpu"), gpus()]}))
    assert skipped(run_check("torch-cuda-too-new", {"w1": [python(), gpus()]}))
    assert skipped(run_check("torch-cuda-too-new", {"w1": [python(torch="2.9.0+cu130"), gpus(cuda="")]}))


@pytest.mark.parametrize(
    ("gpu", "cuda", "is_found"),
    [
        ("Tesla V100-SXM2-32GB", "13.0.48", True),
        ("Tesla P40", "13.0.48", True),
        ("Tesla T4", "13.0.48", False),
        ("NVIDIA A100-SXM4-80GB", "13.0.48", False),
        ("NVIDIA RTX PRO 4000 Blackwell", "13.0.48", False),
        ("Tesla V100-SXM2-32GB", "12.8.90", False),
    ],
)
def test_gpus_that_a_cuda_has_no_code_for(gpu: str, cuda: str, is_found: bool) -> None:
    """Neither a new driver nor cuda-compat helps them."""
    env = python(compat=True, torch="2.9.0", nvidia_cuda_runtime=cuda)
    inventory = msgspec.structs.replace(gpus(cuda="13.0"), gpus=(Gpu(0, gpu, "GPU-0", "580.65.06", 32768, 0),))
    findings = run_check("torch-cuda-too-new", {"w1": [env, inventory]}).findings
    assert [(gpu in str(finding), finding.values["wheel"]) for finding in findings] == [(True, "cu126")] * is_found
