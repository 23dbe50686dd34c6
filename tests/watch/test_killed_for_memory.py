"""A rank that the kernel kills for memory, in a control group with a limit of its own."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.watch.running import LIMIT, doctor_watch

RANK = Path(__file__).with_name("recorded_rank.py")
MEMORY = Path("/sys/fs/cgroup/memory")
BYTES = 160 << 20
pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(LIMIT),
    pytest.mark.skipif(not os.access(MEMORY / "cgroup.procs", os.W_OK), reason="needs root and control groups v1"),
]


@pytest.fixture
def limited() -> Iterator[Path]:
    """A control group; nothing is put into it before its limit is set."""
    group = MEMORY / f"doctor-test-{os.getpid()}"
    group.mkdir()
    limit = group / "memory.limit_in_bytes"
    limit.write_text(str(BYTES))
    assert int(limit.read_text()) == BYTES
    yield group
    deadline = time.monotonic() + 20
    while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    group.rmdir()


def test_the_rank_that_is_killed_is_named(limited: Path, tmp_path: Path) -> None:
    setting = "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1"
    script = f"echo $$ >{limited}/cgroup.procs; "
    script += f"for rank in 0 1; do RANK=$rank {setting} {sys.executable} {RANK} 100 1 20 memory & done; wait $!"
    watched = doctor_watch("sh", "-c", script, options=("--exit-on", "fault"), folder=tmp_path)
    assert watched.code == 10, watched.stderr
    assert (watched.failure["kind"], watched.failure["culprit_ranks"]) == ("dead", [1])
    assert watched.failure["evidence"] == ["Rank 1 was killed for memory."]
