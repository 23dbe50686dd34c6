"""The limits of a job's control groups: version 1 and 2, containers, Slurm, and what stands for no limit."""

from __future__ import annotations

import builtins
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.control_group import ControlGroup, MemoryBound, read_control_groups
from tests.facts.answers import answered, refused
from tests.facts.garbage import JSON, runs_on_python_3_6

MEMORY = Path("/sys/fs/cgroup/memory")
GIB = 1 << 30
V1_NONE = "9223372036854771712"


def answer(*levels: tuple[str, dict[str, str]], **more: Any) -> dict[str, Any]:
    rows = [{"path": path, "values": values} for path, values in levels]
    return {"levels": rows, "hidden": [], "allowed": 64, "online": 64, "slurm_step": False, **more}


def group(*levels: tuple[str, dict[str, str]], **more: Any) -> ControlGroup:
    control_group = answered(ControlGroup, answer(*levels, **more))
    assert isinstance(control_group, ControlGroup), control_group
    return control_group


@pytest.mark.parametrize("text", ["ERR!", "１", "12 GiB"])
def test_what_is_no_number_is_unread(text: str) -> None:
    assert isinstance(answered(ControlGroup, answer(("/sys/fs/cgroup", {"memory.max": text}))), Unreadable)


@pytest.mark.parametrize("text", ["max", V1_NONE, "9223372036854710272", "-1", "", "99999999999999999999999"])
def test_what_is_no_limit(text: str) -> None:
    """The second is that of version 1, the third of a kernel with pages of 64 KiB."""
    files = ("memory.max", "memory.high", "memory.limit_in_bytes", "pids.max", "cpu.max", "cpu.cfs_quota_us")
    control_group = group(("/sys/fs/cgroup", dict.fromkeys(files, text)))
    assert (control_group.memory, control_group.processes, control_group.quota, control_group.usable_cpus) == (
        (),
        None,
        None,
        64,
    )


def test_version_2() -> None:
    values = {"memory.max": "8589934592", "memory.high": "max", "memory.current": "3221225472", "cache": "1073741824"}
    control_group = group(
        ("/sys/fs/cgroup/a/b", {**values, "pids.max": "512", "cpu.max": "150000 100000"}),
        ("/sys/fs/cgroup/a", {"memory.max": "max", "memory.high": "4294967296", "memory.current": "5368709120"}),
    )
    assert control_group.memory == (
        MemoryBound("/sys/fs/cgroup/a/b/memory.max", 8 * GIB, 2 * GIB),
        MemoryBound("/sys/fs/cgroup/a/memory.high", 4 * GIB, 5 * GIB),
    )
    assert [bound.available for bound in control_group.memory] == [6 * GIB, 0]
    assert (control_group.processes, control_group.processes_setting) == (512, "/sys/fs/cgroup/a/b/pids.max")
    assert (control_group.quota, control_group.usable_cpus) == (1.5, 1.5)


def test_version_1_and_the_narrowest_of_several() -> None:
    control_group = group(
        ("/m/a", {"memory.limit_in_bytes": str(GIB), "memory.usage_in_bytes": "4096"}),
        ("/m", {"memory.limit_in_bytes": V1_NONE}),
        ("/p/a", {"pids.max": "900"}),
        ("/p", {"pids.max": "800"}),
        ("/c/a", {"cpu.cfs_quota_us": "400000", "cpu.cfs_period_us": "100000"}),
        ("/c", {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}),
        allowed=3,
    )
    assert control_group.memory == (MemoryBound("/m/a/memory.limit_in_bytes", GIB, 4096),)
    assert (control_group.processes_setting, control_group.quota, control_group.usable_cpus) == ("/p/pids.max", 4.0, 3)


def test_a_step_of_slurm_is_doctors_own_and_the_job_counts() -> None:
    job, step = "/sys/fs/cgroup/slurm/uid_0/job_7", "/sys/fs/cgroup/slurm/uid_0/job_7/step_1"
    levels = (
        (step, {"memory.limit_in_bytes": str(GIB), "cpuset.effective_cpus": "3"}),
        (job, {"memory.limit_in_bytes": str(9 * GIB), "cpuset.effective_cpus": "0-7,9"}),
    )
    control_group = group(*levels, allowed=1, slurm_step=True)
    assert ([bound.limit for bound in control_group.memory], control_group.usable_cpus) == ([9 * GIB], 9)
    control_group = group(*levels, allowed=1)
    assert (len(control_group.memory), control_group.usable_cpus) == (2, 1)


def test_what_is_not_shown_is_not_known() -> None:
    assert "not mounted" in refused(ControlGroup, {"": Output(out=json.dumps(answer(hidden=["memory"])))})
    assert "memory" in group(("/sys/fs/cgroup/pids", {"pids.max": "max"}), hidden=["memory", ""]).unread


class Kernel:
    """Files that stand in for those of /proc and /sys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], folder: Path) -> None:
        plain_open = builtins.open

        def opened(path: Any, *arguments: Any, **more: Any) -> Any:
            if isinstance(path, str) and path.startswith(("/proc/self/", "/sys/fs/cgroup")):
                if path not in files:
                    raise FileNotFoundError(path)
                (folder / "file").write_text(files[path])
                path = folder / "file"
            return plain_open(path, *arguments, **more)

        monkeypatch.setattr(builtins, "open", opened)


def levels_of(monkeypatch: pytest.MonkeyPatch, folder: Path, files: dict[str, str]) -> list[str]:
    with monkeypatch.context() as patch:
        Kernel(patch, files, folder)
        return [level["path"] for level in read_control_groups({})["levels"]]


V2 = "30 23 0:26 {root} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "36 32 0:33 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"


@pytest.mark.parametrize(
    ("mount", "member", "root", "paths"),
    [
        (V2, "0::/system.slice/job.service", "/", ["/system.slice/job.service", ""]),
        (V2, "0::/", "/", [""]),
        (V2, "0::/../other", "/", [""]),
        (V2, "0::/kubepods/pod1/c1", "/kubepods/pod1/c1", [""]),
        (V1, "4:memory:/docker/ab", "/docker/ab", ["/memory"]),
        (V1, "4:memory:/docker/ab/x", "/docker/ab", ["/memory/x", "/memory"]),
        (V1, "4:memory:/docker/abc", "/docker/ab", ["/memory"]),
        (V1, "4:memory:/slurm/uid_0/job_1", "/", ["/memory/slurm/uid_0/job_1", "/memory"]),
    ],
)
def test_the_groups_that_hold_a_process(
    mount: str, member: str, root: str, paths: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As systemd, a container with a control group namespace, Kubernetes, Docker of version 1, and Slurm show them."""
    top = "/sys/fs/cgroup"
    files = {f"{top}{path}/{file}": "max" for path in paths for file in ("memory.max", "memory.limit_in_bytes")}
    files |= {"/proc/self/mountinfo": mount.format(root=root), "/proc/self/cgroup": f"{member}\n"}
    assert levels_of(monkeypatch, tmp_path, files) == [top + path for path in paths]


def test_the_cache_of_files_is_read_where_there_is_a_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files = {
        "/proc/self/mountinfo": V1.format(root="/"),
        "/proc/self/cgroup": "4:memory:/\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "1000000",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes": "700000",
        "/sys/fs/cgroup/memory/memory.stat": "active_file 1\ninactive_file 2\ntotal_active_file 300000\n"
        "total_inactive_file 5\n",
    }
    with monkeypatch.context() as patch:
        Kernel(patch, files, tmp_path)
        control_group = answered(ControlGroup, read_control_groups({}))
    assert control_group.memory == (MemoryBound("/sys/fs/cgroup/memory/memory.limit_in_bytes", 1000000, 399995),)


GREEDY = "data = bytearray({count})\nfor place in range(0, {count}, 4096): data[place] = 1\nprint('lives')"


@pytest.fixture
def limited() -> Iterator[Path]:
    folder = MEMORY / f"doctor-test-{os.getpid()}"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(str(64 << 20))
    yield folder
    folder.rmdir()


@pytest.mark.skipif(not os.access(MEMORY / "cgroup.procs", os.W_OK), reason="needs root and control groups v1")
def test_what_the_kernel_really_lets_a_process_have(limited: Path) -> None:
    """One that takes less than what is available lives beside one that takes more, and is killed."""
    inside = ["sh", "-c", f'echo $$ >{limited}/cgroup.procs && exec "$@"', "sh", sys.executable]
    source = "from doctor.facts.control_group import read_control_groups as f; import json; print(json.dumps(f({})))"
    output = subprocess.run([*inside, "-c", source], capture_output=True, text=True, check=True).stdout
    control_group = answered(ControlGroup, json.loads(output))
    bound = next(bound for bound in control_group.memory if bound.setting.startswith(str(limited)))
    assert bound.limit == 64 << 20
    assert 0 < bound.available <= bound.limit
    ends = [
        subprocess.run([*inside, "-c", GREEDY.format(count=count)], capture_output=True).returncode
        for count in (bound.available // 2, 2 * bound.limit)
    ]
    assert ends == [0, -signal.SIGKILL]


def test_this_machine() -> None:
    assert isinstance(answered(ControlGroup, read_control_groups({})), (ControlGroup, Absent))


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(ControlGroup, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(read_control_groups)
