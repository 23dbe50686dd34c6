"""What rocm-driver-mismatch finds."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.facts.amd_smi import AmdGpu, AmdGpus
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import RocmVersion
from tests.checks.run_check import messages, run_check, skipped

MI300X = "AMD Instinct MI300X"


def outcome(module: str, torch: str = "", rocm: str = "") -> Any:
    amd = AmdGpus(gpus=tuple(AmdGpu(n, f"0000:{n}5:00.0", MI300X, module, uncorrectable=0) for n in range(8)))
    packages = {"torch": torch} if torch else {}
    python = PythonEnv(path="/usr/bin/python3", version="3.12.3", packages=packages, finds_torch=bool(torch))
    return run_check("rocm-driver-mismatch", {"w1": [amd, python, *([RocmVersion(version=rocm)] if rocm else [])]})


@pytest.mark.parametrize(
    ("module", "torch", "rocm"),
    [
        ("6.10.5", "2.7.1+rocm6.3", ""),
        ("6.8.5", "2.4.0+rocm6.2.3.git4a4d5d2d", "6.1.0-82"),
        ("6.12.12", "2.8.0a0+git1234567", "7.0.2-56"),
        ("6.16.13", "", "7.2.3"),
        ("6.3.6", "", "5.6.1-93"),
        ("6.12.12", "2.10.0+rocm7.1", ""),
        ("6.14.14", "", "7.2.4-93"),
        ("6.16.6", "2.13.0+rocm7.14.0a20260701", ""),
    ],
)
def test_pairs_that_the_vendor_lists(module: str, torch: str, rocm: str) -> None:
    result = outcome(module, torch, rocm)
    assert not result.findings and not result.unknown and not skipped(result)


@pytest.mark.parametrize(
    ("module", "torch", "rocm", "text"),
    [
        ("6.10.5", "2.0.1+rocm5.4.2", "6.3.1-48", "driver 6.3 (6.10.5) with ROCm 5.4.2 of torch"),
        ("6.7.0", "", "7.1.1-38", "driver 6.1 (6.7.0) with ROCm 7.1.1-38 of /opt/rocm"),
        ("6.16.13", "2.4.1+rocm6.1", "", "driver 30.30 (6.16.13) with ROCm 6.1 of torch"),
        ("6.12.12", "", "7.14.0", "driver 6.4 (6.12.12) with ROCm 7.14.0 of /opt/rocm"),
    ],
)
def test_pairs_that_it_leaves_out(module: str, torch: str, rocm: str, text: str) -> None:
    ((_, message),) = messages(outcome(module, torch, rocm))
    assert message.startswith(text)


@pytest.mark.parametrize(
    ("module", "torch"),
    [("6.16.6", "2.10.0+rocm7.12.0a20260206"), ("6.16.13", "2.13.0+rocm10.1"), ("6.7.0", "2.13.0+rocm9.4")],
)
def test_what_the_table_does_not_hold_is_unknown(module: str, torch: str) -> None:
    assert "does not hold ROCm" in outcome(module, torch).unknown["w1"].text


@pytest.mark.parametrize(
    ("module", "torch", "rocm"),
    [
        ("6.8.0-79-generic", "2.7.1+rocm6.3", ""),
        ("Linuxversion6.8.0-79-generic(buildd@lcy02-amd64-049)", "2.7.1+rocm6.3", ""),
        ("", "2.7.1+rocm6.3", ""),
        ("6.10.5", "2.7.1+cu126", ""),
        ("6.10.5", "", ""),
    ],
)
def test_where_it_does_not_apply(module: str, torch: str, rocm: str) -> None:
    assert skipped(outcome(module, torch, rocm))
