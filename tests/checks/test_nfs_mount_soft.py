"""What nfs-mount-soft finds. The lines are those of /proc/self/mounts, as nfs_show_options of Linux prints them."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output
from doctor.facts.mounts import MountTable
from tests.checks.run_check import messages, run_check
from tests.facts.answers import learned

HARD = (
    "nas1:/export/data /data nfs4 rw,relatime,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,"
    "retrans=2,sec=sys,clientaddr=10.0.0.1,local_lock=none,addr=10.0.0.9 0 0"
)


def table(*lines: str) -> MountTable:
    """The mounts of a host with these lines in its table."""
    mount_table = learned(MountTable, {"/proc/self/mounts": Output(out="\n".join(lines) + "\n")})
    assert isinstance(mount_table, MountTable)
    return mount_table


@pytest.mark.parametrize(
    "line",
    [
        HARD,
        HARD.replace(",hard", ",soft").replace(" rw,", " ro,"),
        "10.0.0.2@o2ib:/fs /lustre lustre rw,checksum,flock,nouser_xattr,lruresize,lazystatfs 0 0",
        "nas1:soft /soft fuse.sshfs rw,soft 0 0",
    ],
    ids=["hard", "read-only", "lustre", "no NFS"],
)
def test_mounts_that_lose_no_writes(line: str) -> None:
    assert messages(run_check("nfs-mount-soft", {"w1": [table(line)]})) == []


@pytest.mark.parametrize("option", ["soft", "softerr"])
def test_a_soft_mount_that_can_be_written_to(option: str) -> None:
    assert messages(run_check("nfs-mount-soft", {"w1": [table(HARD.replace("hard", option))]})) == [
        ("w1", f"/data (NFS from nas1:/export/data) is mounted with {option}, and can be written to; expected hard")
    ]
