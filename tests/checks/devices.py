"""Healthy hosts with NPUs, GPUs and a Python of the job, to be made ill in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Skip
from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.result import Finding
from doctor.facts.gpu import Gpu, GpuInventory
from doctor.facts.npu import NpuInventory
from doctor.facts.npu_health import ChipHealth, NpuHealth
from doctor.facts.npu_table import NpuState, NpuTable
from doctor.facts.python_env import PythonEnv, TorchImport
from doctor.facts.versions import CannVersion, NpuVersions

Look = Callable[..., list[Finding]]

HCCL = "ImportError: libhccl.so: cannot open shared object file. Please run 'source set_env.sh' in the CANN path."
HAL = "ImportError: libascend_hal.so: cannot open shared object file: No such file or directory"
SET_ENV = "/usr/local/Ascend/cann/set_env.sh"


def of(name: str) -> Look:
    """The check's function, as a list of what it finds; last facts that are not given are None."""
    function = load_check(bundled_folder("checks") / f"{name}.py").function
    size = len(inspect.signature(function).parameters)

    def look(*facts: Any) -> list[Finding]:
        return list(function(*facts, *[None] * (size - len(facts))))

    return look


def fleet(*facts: Any) -> PerHost[Any]:
    return PerHost(dict(zip("abcdefgh", facts, strict=False)))


def skipped(look: Look, *facts: Any) -> str:
    with pytest.raises(Skip) as why:
        look(*facts)
    return str(why.value)


def unknown(look: Look, *facts: Any) -> Unreadable:
    with pytest.raises(Unreadable) as why:
        look(*facts)
    return why.value


def inventory(devices: Iterator[int] | range | tuple[int, ...] = range(8), **more: Any) -> NpuInventory:
    numbers = tuple(devices)
    healthy = {
        "pci_count": len(numbers),
        "manager": True,
        "denied_files": (),
        "tools": ("hccn_tool", "npu-smi"),
        "newer_than_boot": (),
    }
    return NpuInventory(devices=numbers, **{**healthy, **more})


def state(device: int = 0, **more: Any) -> NpuState:
    healthy = {"name": "910B3", "health": "OK", "bus": "0000:C1:00.0", "hbm_used": 3000, "hbm_total": 65536}
    return NpuState(**{"npu": device, "chip": 0, "device": device, **healthy, **more})


def table(*npus: NpuState, **more: Any) -> NpuTable:
    return NpuTable(npus=npus or (state(),), **{"processes": (), "incomplete_install": False, **more})


def health(*reports: ChipHealth, refused: dict[int, str] | None = None) -> NpuHealth:
    return NpuHealth(chips=reports or (ChipHealth(0, 0, "OK"),), refused=refused or {})


def versions(**more: Any) -> NpuVersions:
    healthy = {
        "driver": "25.5.2",
        "firmware": "7.8.0.7.220",
        "firmware_ranges": (("7.0.0", "8.9.9"),),
        "install_status": "complete",
    }
    return NpuVersions(**{**healthy, **more})


def cann(version: str = "8.3.RC1") -> CannVersion:
    return CannVersion(version=version, path="/usr/local/Ascend/cann", installed={"/usr/local/Ascend/cann": version})


def python(version: str = "3.10.12", unread: dict[str, str] | None = None, **packages: str) -> PythonEnv:
    present = "torch" in packages
    return PythonEnv(
        path="/opt/job/python", version=version, packages=packages, finds_torch=present, unread=unread or {}
    )


def torch(error: str = "", error_after: str = "", set_env: str = "") -> TorchImport:
    return TorchImport(error=error, set_env=set_env, error_with_set_env=error_after)


def gpus(count: int = 8, driver: str = "550.54.15", errors: int | None = 0) -> GpuInventory:
    observed_gpus = tuple(Gpu(n, "NVIDIA H100 80GB HBM3", f"GPU-{n}", driver, 81559, errors) for n in range(count))
    return GpuInventory(gpus=observed_gpus)
