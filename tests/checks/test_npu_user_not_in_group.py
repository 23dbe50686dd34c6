"""What npu-user-not-in-group finds."""

from __future__ import annotations

from doctor.facts.access import DeviceFile, JobAccess
from tests.checks.devices import of

look = of("npu_user_not_in_group")


def access(*groups: str, mode: str = "660", opens: bool = False) -> JobAccess:
    file = DeviceFile(mode, "HwHiAiUser", "HwHiAiUser", opens)
    return JobAccess(uid=1000, user="ann", groups=groups, files={"/dev/davinci0": file, "/dev/hisi_hdc": file})


def test_files_that_can_be_opened() -> None:
    assert look(access("HwHiAiUser", opens=True)) == []
    assert look(access("ann", mode="666", opens=True)) == []


def test_a_user_outside_the_group() -> None:
    (finding,) = look(access("ann", "wheel"))
    assert str(finding) == "ann is not in the group HwHiAiUser and may not open /dev/davinci0"
    assert (finding.values["observed"], finding.values["files"]) == (["ann", "wheel"], 2)


def test_files_that_are_still_for_root_alone() -> None:
    (finding,) = look(access("HwHiAiUser", mode="600"))
    assert str(finding) == "ann may not open /dev/davinci0 (mode 600, owner HwHiAiUser)"


def test_a_member_who_is_refused_all_the_same() -> None:
    (finding,) = look(access("HwHiAiUser"))
    assert "not in the group" not in str(finding)
