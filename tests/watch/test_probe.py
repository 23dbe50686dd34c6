"""The probe: silent where nobody watches, cheap, blind to nothing, and harmless to the program."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.cli.probe import probe_text

pytestmark = pytest.mark.torch
MODULES = {
    "torch": "torch",
    "probe": "doctor.watch.probe",
    "channel_module": "doctor.watch.hook.channel",
    "digest": "doctor.watch.hook.digest",
}
"""By their names here. All import torch, which every worker would do while tests are collected."""
torch: Any = None
probe: Any = None
channel_module: Any = None
digest: Any = None


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    globals().update({name: importlib.import_module(module) for name, module in MODULES.items()})


class Folder:
    """A folder that is watched."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def records(self, kind: str = "") -> list[dict[str, Any]]:
        lines = [json.loads(line) for path in self.path.glob("*.probe") for line in path.read_text().splitlines()]
        return [line for line in lines if line["k"] == kind or not kind]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    monkeypatch.setenv("DOCTOR_WATCH_PROBES", str(tmp_path))
    monkeypatch.setattr(channel_module, "_searched", False)
    monkeypatch.setattr(channel_module, "_channel", None)
    yield Folder(tmp_path)
    opened = channel_module._channel
    if opened is not None and opened.file >= 0:
        os.close(opened.file)
        opened.file = -1


def test_a_file_of_the_program_that_has_the_probes_number_stays_as_it_is(watched: Folder, tmp_path: Path) -> None:
    """A program may close all its files, and open others."""
    probe.loss(1, 2.0)
    number = channel_module._channel.file
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_WRONLY)
    os.dup2(other, number)
    probe.loss(2, 2.0)
    os.close(number)
    probe.loss(3, 2.0)
    assert (tmp_path / "other").read_bytes() == b"" and [record["s"] for record in watched.records("loss")] == [1, 2, 3]
    os.close(other)


def test_a_full_disk_ends_the_digests_and_not_the_program(watched: Folder, capfd: pytest.CaptureFixture[str]) -> None:
    probe.loss(1, 2.0)
    opened = channel_module._channel
    os.close(opened.file)
    opened.file = os.open("/dev/full", os.O_WRONLY)
    opened.identity = channel_module._file_of(opened.file)
    full = opened.file
    probe.loss(2, 2.0)
    opened.write("failed")
    os.close(full)
    assert "no more digests: No space left on device" in capfd.readouterr().err and opened.file == -1


def test_without_a_watch_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_WATCH_PROBES", raising=False)
    monkeypatch.setattr(channel_module, "_searched", False)
    monkeypatch.setattr(channel_module, "_channel", None)
    monkeypatch.chdir(tmp_path)
    probe.same("mask", torch.zeros(3))
    probe.loss(1, 2.0)
    assert list(tmp_path.iterdir()) == []


def test_every_call_writes_one_record(watched: Folder) -> None:
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    probe.same("mask", torch.zeros(3), [0, 1])
    probe.different("dropout", torch.ones(2, dtype=torch.bool))
    probe.shard([4, 2], total=8)
    probe.params(model)
    probe.gradients(model)
    probe.loss(7, torch.tensor(float("nan")))
    probe.heartbeat()
    kinds = [record["k"] for record in watched.records()]
    assert kinds == ["process", "group", "same", "different", "shard", "params", "gradients", "loss", "heartbeat"]
    assert watched.records("loss")[0]["v"] == "nan"
    assert set(watched.records("params")[0]["t"]) == {"weight", "bias"}


NAMES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [0, 1, 300, 40_000])
def test_a_digest_is_that_of_the_values_and_their_order(name: str, size: int) -> None:
    if not hasattr(torch, name):
        pytest.skip(f"this torch has no {name}")
    dtype = getattr(torch, name)
    values = (torch.arange(size) % 2).to(dtype)
    assert digest.tensor_digest(values) == digest.tensor_digest(values.clone())
    if size > 1:
        spread = torch.stack([values, values], 1)[:, 0]
        assert not spread.is_contiguous() and digest.tensor_digest(spread) == digest.tensor_digest(values)
        changed = values.clone()
        changed[size // 2] = 1 - int(values[size // 2].to(torch.float32).item() if not dtype.is_complex else 0)
        swapped = torch.cat([values[1:2], values[:1], values[2:]])
        assert len({digest.tensor_digest(values), digest.tensor_digest(swapped)}) == 2
        if not dtype.is_complex:
            assert digest.tensor_digest(changed) != digest.tensor_digest(values)


def test_a_large_tensor_shows_a_change_in_any_place() -> None:
    values = torch.randn(50_001)
    digests = {digest.tensor_digest(values)}
    for place in (0, 1, 1023, 1024, 30_000, 49_999, 50_000):
        other = values.clone()
        other[place] += 1
        digests.add(digest.tensor_digest(other))
    assert len(digests) == 8
    assert digest.tensor_digest(torch.cat([torch.zeros(1), values])[1:]) == digest.tensor_digest(values), (
        "another alignment"
    )


def test_a_conjugate_is_not_the_tensor_that_it_is_a_view_of() -> None:
    values = torch.randn(4, dtype=torch.complex64)
    assert digest.value_digest(values.conj()) != digest.value_digest(values)
    assert digest.value_digest(values.conj()) == digest.value_digest(values.conj().resolve_conj().clone())


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, device="meta"),
        lambda: torch.zeros(3, 3).to_sparse(),
        object,
        type("Loud", (), {"__repr__": lambda self: 1 / 0, "shape": property(lambda self: 1 / 0)}),
    ],
    ids=["meta", "sparse", "object", "hostile"],
)
def test_what_has_no_digest_does_no_harm(watched: Folder, make: Callable[[], Any]) -> None:
    strange = make()
    probe.same("x", strange)
    probe.shard(strange)
    probe.params(strange)
    probe.loss(strange, strange)
    assert all(record.get("d") is None for record in watched.records("same"))


def test_freed_memory_is_not_read(watched: Folder) -> None:
    values = torch.zeros(100)
    values.untyped_storage().resize_(0)
    probe.same("freed", values)
    assert watched.records("same")[0]["d"] is None


def test_many_failures_end_the_probe_and_it_says_so(watched: Folder) -> None:
    for _ in range(30):
        probe.params(None)
    assert len(watched.records("failed")) == 20 and len(watched.records("ended")) == 1


def test_a_forked_child_has_a_file_of_its_own(watched: Folder) -> None:
    probe.heartbeat()
    pid = os.fork()
    if not pid:
        probe.heartbeat()
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(watched.path.glob("*.probe"))) == 2


def test_threads_number_their_calls_without_a_gap(watched: Folder) -> None:
    value = torch.zeros(2)
    threads = [threading.Thread(target=lambda: [probe.same("x", value) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(record["i"] for record in watched.records("same")) == list(range(200))


def test_random_numbers_and_tensors_stay_as_they_are(watched: Folder) -> None:
    model = torch.nn.Linear(40, 500)
    before = random.getstate(), torch.get_rng_state(), [tensor.clone() for tensor in model.parameters()]
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        probe.same("x", model(torch.zeros(2, 40)))
    probe.params(model)
    assert watched.records("same")[0]["d"]
    assert random.getstate() == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert all(torch.equal(old, new) for old, new in zip(before[2], model.parameters(), strict=True))


def test_a_compiled_function_is_not_broken_by_a_call(watched: Folder) -> None:
    @torch.compile(backend="eager", fullgraph=True)
    def double(x: torch.Tensor) -> torch.Tensor:
        probe.same("x", x)
        probe.heartbeat()
        return x * 2

    assert double(torch.ones(2)).tolist() == [2, 2]
    assert watched.records("same") == []


def test_it_is_one_file_that_needs_nothing_of_doctor(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(probe_text(), "utf-8")
    (tmp_path / "torch.py").write_text("raise OSError('a broken torch')\n")
    program = "import probe; probe.same('seed', 7); probe.loss(1, 2.5); probe.heartbeat()"
    environment = {"DOCTOR_WATCH_PROBES": str(tmp_path), "PATH": "/usr/bin:/bin", "RANK": "3"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, timeout=60)
    records = Folder(tmp_path).records()
    assert [record["k"] for record in records] == ["process", "same", "loss", "heartbeat", "end"]
    assert {record["r"] for record in records} == {3}


def test_it_runs_with_python_3_8() -> None:
    from vermin import Config, detect  # type: ignore[import-untyped]

    assert max(version for version in detect(probe_text(), Config()) if version) <= (3, 8)


def test_doctor_imports_no_torch_for_it() -> None:
    program = "import sys, doctor; assert 'torch' not in sys.modules and 'doctor.watch.probe' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
