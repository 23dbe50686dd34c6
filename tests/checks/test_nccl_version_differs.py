"""What nccl-version-differs finds."""

from __future__ import annotations

from doctor.facts.python_env import PythonEnv
from tests.checks.run_check import fleet, messages, run_check


def python(**packages: str) -> PythonEnv:
    return PythonEnv(path="/p", version="3.11.7", packages=packages, finds_torch=True)


def test_one_version_and_hosts_without_nccl() -> None:
    assert messages(run_check("nccl-version-differs", fleet(2, python(nvidia_nccl_cu12="2.27.5")))) == []
    assert messages(run_check("nccl-version-differs", fleet(2, python()))) == []


def test_another_version() -> None:
    hosts = {**fleet(2, python(nvidia_nccl_cu12="2.27.5")), "w3": [python(nvidia_nccl_cu12="2.21.5")]}
    outcome = run_check("nccl-version-differs", hosts)
    assert messages(outcome) == [("w3", "NCCL 2.21.5; 2 of 3 hosts have 2.27.5")]
    assert outcome.findings[0].values["package"] == "nvidia-nccl-cu12"
