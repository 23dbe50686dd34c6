"""What mount-options-differ finds."""

from __future__ import annotations

import pytest

from doctor.facts.mounts import MountTable
from tests.checks.run_check import messages, run_check, skipped
from tests.checks.test_nfs_mount_soft import HARD, table

NFS3 = HARD.replace(" nfs4 ", " nfs ").replace("vers=4.2", "vers=3")
LUSTRE = "10.0.0.2@o2ib:/fs /data lustre rw,checksum,flock,nouser_xattr,lruresize,lazystatfs 0 0"


def hosts(line: str, other: str, count: int = 3) -> dict[str, list[MountTable]]:
    """So many hosts with one line in their tables, and w9 with the other."""
    return {**{f"w{number}": [table(line)] for number in range(count)}, "w9": [table(other)]}


@pytest.mark.parametrize(
    ("line", "other"),
    [
        (HARD, HARD),
        (HARD, HARD.replace("10.0.0.1", "10.0.0.7").replace("addr=10.0.0.9", "addr=10.0.0.8")),
        (HARD, HARD.replace("vers=4.2", "vers=4.1").replace("1048576", "65536")),
        (HARD, HARD.replace(",local_lock=none", "")),
        (HARD.replace("rw,", "ro,"), HARD),
        (HARD, LUSTRE),
        (HARD, HARD.replace(" /data ", " /home ")),
        (LUSTRE, LUSTRE.replace("lazystatfs", "nolazystatfs")),
        (
            NFS3.replace("local_lock=none", "nolock,local_lock=all"),
            NFS3.replace("local_lock=none", "nolock,local_lock=all"),
        ),
    ],
    ids=[
        "equal",
        "addresses",
        "minor",
        "older kernel",
        "one writes",
        "other kind",
        "other path",
        "lustre",
        "all nolock",
    ],
)
def test_hosts_that_agree_in_what_matters(line: str, other: str) -> None:
    assert messages(run_check("mount-options-differ", hosts(line, other))) == []


@pytest.mark.parametrize(
    ("line", "other", "text"),
    [
        (HARD, HARD.replace("rw,", "ro,"), "/data (access): read-only; 3 of 4 hosts have read and write"),
        (HARD, NFS3, "/data (version): version 3; 3 of 4 hosts have version 4"),
        (
            NFS3,
            NFS3.replace("local_lock=none", "nolock,local_lock=all"),
            "/data (file locks): nolock,local_lock=all; 3 of 4 hosts have the default",
        ),
        (HARD, HARD.replace("hard", "hard,noac"), "/data (caching of attributes): noac; 3 of 4 hosts have the default"),
        (
            HARD.replace("hard", "acregmin=1,hard"),
            HARD,
            "/data (caching of attributes): the default; 3 of 4 hosts have acregmin=1",
        ),
        (HARD, HARD.replace("hard", "soft"), "/data (waiting for the server): soft; 3 of 4 hosts have the default"),
        (LUSTRE, LUSTRE.replace("flock", "localflock"), "/data (file locks): localflock; 3 of 4 hosts have flock"),
    ],
)
def test_a_host_that_differs(line: str, other: str, text: str) -> None:
    assert messages(run_check("mount-options-differ", hosts(line, other))) == [("w9", text)]


def test_one_host_cannot_be_compared() -> None:
    assert skipped(run_check("mount-options-differ", {"w1": [table(HARD)]}))
