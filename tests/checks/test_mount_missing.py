"""What mount-missing finds."""

from __future__ import annotations

from doctor.engine.result import accused_hosts
from doctor.facts.mounts import Mount, MountTable
from tests.checks.run_check import fleet, messages, run_check, skipped

DATA = MountTable(mounts=(Mount("/data", "nas1:/data", "nfs4"),))
NONE = MountTable(mounts=())
MOUNT_TABLE = MountTable(mounts=(*DATA.mounts, Mount("/scratch", "nas2:/s", "nfs4")))


def test_equal_hosts_small_fleets_and_mounts_of_few() -> None:
    assert messages(run_check("mount-missing", fleet(3, DATA))) == []
    assert skipped(run_check("mount-missing", {"w1": [DATA], "w2": [NONE]}))
    assert messages(run_check("mount-missing", {**fleet(3, DATA), "w4": [MOUNT_TABLE]})) == []


def test_a_mount_that_appears_when_it_is_needed() -> None:
    """A home that autofs mounts: three users' processes run on three of the four hosts."""
    home = Mount("/home/ada", "nas1:/home/ada", "nfs4")
    used, unused = MountTable((home,), ("/home",)), MountTable((), ("/home",))
    assert messages(run_check("mount-missing", {**fleet(3, used), "w4": [unused]})) == []
    elsewhere = MountTable((), ("/homes", "/home/adam"))
    assert [host for host, _ in messages(run_check("mount-missing", {**fleet(3, used), "w4": [elsewhere]}))] == ["w4"]


def test_the_hosts_without_it() -> None:
    assert messages(run_check("mount-missing", {**fleet(3, DATA), "w4": [NONE]})) == [
        ("w4", "/data (nfs4) is not mounted; 3 of 4 hosts have it from nas1:/data")
    ]


def test_where_half_of_the_hosts_have_it_the_difference_is_named_and_no_host() -> None:
    (finding,) = run_check("mount-missing", {**fleet(2, DATA), "w3": [NONE], "w4": [NONE]}).findings
    assert finding.values["groups"] == {"nas1:/data": ["w1", "w2"], "not mounted": ["w3", "w4"]}
    assert accused_hosts(finding, 4) == () and finding.values["target"] == "/data"
    few = {**fleet(2, DATA), **{f"w{number}": [NONE] for number in (3, 4, 5)}}
    assert messages(run_check("mount-missing", few)) == []
