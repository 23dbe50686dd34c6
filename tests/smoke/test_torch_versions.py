"""The worker on every torch from 2.1 on.

Each difference between versions that ever broke a run is emulated here, with the torch that is installed. The versions
themselves are tried where ``TORCH_VENVS`` names their interpreters, separated by colons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from doctor.smoke.model import Layout
from tests.smoke.ranks import Ranks

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = (Layout(dp=2), Layout(dp=2, zero=True), Layout(tp=2), Layout(pp=2))

NO_SOCKET_WITH_LIBUV = """
import torch.distributed as _dist

class _Store(_dist.TCPStore):  # as in torch 2.4 to 2.7
    def __init__(self, host_name, port, world_size=None, is_master=False, *rest, use_libuv=True, **options):
        if use_libuv and options.get("master_listen_fd") is not None:
            raise NotImplementedError("The libuv TCPStore backend does not support initialization with an listen fd.")
        super().__init__(host_name, port, world_size, is_master, *rest, use_libuv=use_libuv, **options)

_dist.TCPStore = _Store
"""

BUILT_WITHOUT_LIBUV = """
import torch.distributed as _dist

class _Store(_dist.TCPStore):
    def __init__(self, *values, use_libuv=True, **options):
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was built without libuv support")
        super().__init__(*values, use_libuv=False, **options)

_dist.TCPStore = _Store
"""

NO_LIBUV_PARAMETER = """
import torch.distributed as _dist

class _Store(_dist.TCPStore):  # as in torch 2.1
    def __init__(self, *values, **options):
        if "use_libuv" in options:
            raise TypeError("__init__(): incompatible constructor arguments.")
        super().__init__(*values, **options)

_dist.TCPStore = _Store
"""

OLD_NAMES = """
import torch.distributed as _dist

for _new, _old in (("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor")):
    if hasattr(_dist, _new):
        setattr(_dist, _old, getattr(_dist, _new))
        delattr(_dist, _new)
"""

NEW_NAMES = """
import torch.distributed as _dist

for _new, _old in (("all_gather_single", "all_gather_into_tensor"), ("reduce_scatter_single", "reduce_scatter_tensor")):
    if hasattr(_dist, _old):
        setattr(_dist, _new, getattr(_dist, _new, getattr(_dist, _old)))
        delattr(_dist, _old)
"""

GLOO_WITHOUT_TENSORS = """
import torch.distributed as _dist

def _no_gather(*values, **options):
    raise RuntimeError("no support for _allgather_base in Gloo process group")

def _no_scatter(*values, **options):
    raise RuntimeError("ProcessGroupGloo does not support reduce_scatter")

for _name in ("all_gather_single", "all_gather_into_tensor"):
    setattr(_dist, _name, _no_gather)
for _name in ("reduce_scatter_single", "reduce_scatter_tensor"):
    setattr(_dist, _name, _no_scatter)
"""

DIFFERENCES = {
    "no socket with libuv": NO_SOCKET_WITH_LIBUV,
    "built without libuv": BUILT_WITHOUT_LIBUV,
    "no libuv parameter": NO_LIBUV_PARAMETER,
    "old names": OLD_NAMES,
    "new names": NEW_NAMES,
    "gloo without tensors": GLOO_WITHOUT_TENSORS,
}


@pytest.mark.parametrize("difference", DIFFERENCES.values(), ids=list(DIFFERENCES))
def test_a_run_with_what_an_older_torch_has(difference: str) -> None:
    run = Ranks(2, ("start", "rendezvous", "collectives", "training", "teardown"), difference, layouts=LAYOUTS)
    assert not run.of("error"), run.of("error")
    assert [event["rank"] for event in run.of("done")] == [0, 1]


VENVS = [path for path in os.environ.get("TORCH_VENVS", "").split(":") if path]
"""Interpreters, each with another torch."""


def run_doctor(*arguments: str, **environment: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "doctor", "smoke", "--json", *arguments]
    done = subprocess.run(
        argv, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment}, timeout=600
    )
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def torch_version(python: str) -> str:
    script = "import torch; print(torch.__version__)"
    return subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True, timeout=600
    ).stdout.strip()


@pytest.mark.skipif(not VENVS, reason="TORCH_VENVS names no interpreter with another torch")
@pytest.mark.parametrize("python", VENVS)
def test_a_healthy_run_with_this_version(python: str) -> None:
    report = run_doctor("--python", python, "--ranks-per-host", "4", "--native", "--budget", "100")
    assert report["smoke"]["ended"] == "complete", report["smoke"]["failures"]
    assert report["smoke"]["environments"][0]["torch"] == torch_version(python)
    assert not [outcome["check"] for outcome in report["outcomes"] if outcome["findings"]]


def doctor_without_torch(folder: Path) -> Path:
    """A folder for PYTHONPATH with this project and what it needs, but neither our torch nor our numpy."""
    import msgspec

    (folder / "doctor").symlink_to(ROOT / "doctor")
    for name in ("checks", "playbooks"):
        (folder / name).symlink_to(ROOT / name)
    for path in Path(msgspec.__file__).parents[1].iterdir():
        if not path.name.startswith(("torch", "functorch", "numpy", "doctor", "_doctor", "__editable__", "distutils-")):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.skipif(not VENVS, reason="TORCH_VENVS names no interpreter with another torch")
@pytest.mark.parametrize("python", VENVS)
def test_torchrun_of_this_version(python: str, tmp_path: Path) -> None:
    """The ranks are torchrun's, and so is the interpreter that they run in."""
    argv = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "doctor.smoke"]
    environment = {**os.environ, "PYTHONPATH": str(doctor_without_torch(tmp_path))}
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"torch {torch_version(python)}" in done.stdout
