"""`doctor watch --within`: ranks in a container, which numbers its processes otherwise than its host."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from doctor.engine.errors import InputError
from doctor.watch.within import command_within, host_pid, require_shared_folder
from tests.watch.running import LIMIT, doctor_watch

RANK = Path(__file__).with_name("recorded_rank.py")
pytestmark = pytest.mark.timeout(LIMIT)


@pytest.fixture
def container() -> Iterator[int]:
    """A process alone in namespaces of its own for processes and mounts; it shares /dev/shm with this host."""
    arguments = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
        "sh",
        "-c",
        "echo up; sleep 1000",
    ]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as outside:
        assert outside.stdout and outside.stdout.readline() == "up\n"
        yield psutil.Process(outside.pid).children()[0].pid
        outside.kill()


@pytest.mark.hosts
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_rank_that_hangs_in_a_container_is_named_with_its_stack(container: int, tmp_path: Path) -> None:
    setting = "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1"
    script = f"for rank in 0 1; do RANK=$rank {setting} {sys.executable} {RANK} 100 1 20 & done; wait"
    options = ("--patience", "1", "--on-hang", "end", "--within", f"nsenter -t {container} -m -p")
    watched = doctor_watch("sh", "-c", script, options=options, folder=tmp_path)
    assert watched.code == 10 and watched.found_ranks == {"smoke-rank-blocked": [1]}
    assert "recorded_rank.py" in watched.stack(1)


def test_a_container_that_does_not_see_the_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the container does not see .* docker run --ipc=host"):
        require_shared_folder(["false"], tmp_path / "watch" / "ranks")
    with pytest.raises(InputError, match="/no/such: no such program"):
        require_shared_folder(["/no/such"], tmp_path)


def test_the_users_own_pythonpath_in_the_container_stays(tmp_path: Path) -> None:
    line = command_within(["env", "PYTHONPATH=/own"], tmp_path, {"A": "b c"}, ["sh", "-c", 'echo "$PYTHONPATH" "$A"'])
    assert subprocess.run(line, capture_output=True, text=True).stdout == f"{tmp_path}:/own b c\n"


def test_a_process_is_found_by_the_page_that_it_maps(tmp_path: Path) -> None:
    page, other = tmp_path / "7-1.page", tmp_path / "7-2.page"
    for path in (page, other):
        path.write_bytes(bytes(4096))
    with page.open("rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ):
        assert host_pid(os.getpid(), page) == os.getpid()
        assert host_pid(os.getpid(), other) == 0 and host_pid(os.getpid(), tmp_path / "gone") == 0
