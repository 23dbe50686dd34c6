"""The files that the installers of driver, firmware and CANN leave."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.engine.version_matrix import base_version, cann_for_release, in_version_range, same_cann_release
from doctor.facts.versions import DRIVER, FIRMWARE, INSTALL, CannVersion, NpuVersions, find_cann
from tests.facts.answers import answered, learned

DRIVER_TEXT = """\
Version=25.5.2
ascendhal_version=7.35.23
aicpu_version=1.0
package_version=
Innerversion=V100R001C23B888
compatible_version_fw=[7.0.0,8.9.9]
compatible_version=[V100R001C15],[V100R001C18]
"""
FIRMWARE_TEXT = "Version=7.1.0.11.220\nfirmware_version=1.0\ncompatible_version_drv=[23.0.0,25.9.9]\n"
INSTALL_TEXT = """\
UserName=HwHiAiUser
UserGroup=HwHiAiUser
Driver_Install_Type=full
Driver_Install_Path_Param=/usr/local/Ascend
Driver_Install_Status=complete
"""
TOOLKIT = """\
package_name=Ascend-cann-toolkit
version=8.1.RC1
innerversion=V100R001C21SPC001B238
arch=aarch64
path=/usr/local/Ascend/ascend-toolkit/8.1.RC1/aarch64-linux
"""
VERSION_CFG = """\
# version: 1.0
runtime_running_version=[7.6.0.1.220:8.0.0]
toolkit_running_version=[7.6.0.1.220:8.0.0]
"""
ABSENT = Output(ended="absent", err="does not exist")


def files(
    driver: str | None = DRIVER_TEXT, firmware: str | None = FIRMWARE_TEXT, install: str | None = INSTALL_TEXT
) -> Any:
    texts = {DRIVER: driver, FIRMWARE: firmware, INSTALL: install}
    return learned(NpuVersions, {path: ABSENT if text is None else Output(out=text) for path, text in texts.items()})


def test_the_three_files() -> None:
    assert files() == NpuVersions(
        driver="25.5.2",
        firmware="7.1.0.11.220",
        firmware_ranges=(("7.0.0", "8.9.9"),),
        install_status="complete",
    )


def test_what_older_drivers_leave_out() -> None:
    value = files("Version=23.0.5\n", None, None)
    assert value == NpuVersions(driver="23.0.5", firmware=None, firmware_ranges=(), install_status=None)


def test_no_driver() -> None:
    assert type(files(None, None, None)) is Absent
    assert isinstance(files(None, install="Driver_Install_Path_Param=/opt/Ascend\n"), Unreadable)


def test_a_file_without_a_version_is_unreadable() -> None:
    assert isinstance(files(""), Unreadable)
    assert isinstance(files("Version=\n"), Unreadable)
    assert isinstance(files(firmware="firmware_version=1.0\n"), Unreadable)


def test_a_file_that_may_not_be_read_is_unreadable() -> None:
    outputs = {
        DRIVER: Output(out=DRIVER_TEXT),
        FIRMWARE: Output(ended="error", err="Permission denied"),
        INSTALL: ABSENT,
    }
    assert isinstance(learned(NpuVersions, outputs), Unreadable)


def tree(root: str, text: str | None, name: str = "ascend_toolkit_install.info") -> dict[str, str]:
    path = f"{root}/{name}"
    return {"root": root, "path": path, **({"error": "Permission denied"} if text is None else {"text": text})}


def test_cann_from_its_install_info() -> None:
    assert answered(CannVersion, [tree("/usr/local/Ascend/ascend-toolkit/latest", TOOLKIT)]) == CannVersion(
        version="8.1.RC1",
        path="/usr/local/Ascend/ascend-toolkit/latest",
        installed={"/usr/local/Ascend/ascend-toolkit/latest": "8.1.RC1"},
    )


def test_cann_from_its_version_cfg() -> None:
    assert answered(CannVersion, [tree("/a", VERSION_CFG, "version.cfg")]).version == "8.0.0"


def test_the_first_tree_that_tells_its_version_is_the_one() -> None:
    value = answered(
        CannVersion, [tree("/a", "x=1"), tree("/b", VERSION_CFG), tree("/b", TOOLKIT), tree("/c", TOOLKIT)]
    )
    assert (value.version, value.path) == ("8.0.0", "/b")
    assert value.installed == {"/b": "8.0.0", "/c": "8.1.RC1"}


def test_no_cann_and_cann_that_does_not_tell() -> None:
    assert type(answered(CannVersion, [])) is Absent
    assert isinstance(answered(CannVersion, [tree("/a", "nothing")]), Unreadable)
    assert isinstance(answered(CannVersion, [tree("/a", None)]), Unreadable)
    assert answered(CannVersion, find_cann({})) is not None


@pytest.mark.parametrize(
    ("version", "fits"),
    [("7.0.0", True), ("6.9.9.9", False), ("7.1.0.11.220", True), ("8.9.9.1", True), ("8.10.0", False)],
)
def test_a_range_of_versions(version: str, fits: bool) -> None:
    assert in_version_range(version, "7.0.0", "8.9.9") is fits


@pytest.mark.parametrize(
    ("first", "other", "same"),
    [
        ("8.2.RC1", "8.2.RC1.beta1", True),
        ("8.2.rc1", "8.2.RC1", True),
        ("8.5.0", "8.5.1", True),
        ("8.0.RC3", "8.0.0", False),
        ("8.0.RC2", "8.0.RC3", False),
        ("9.0.0", "9.1.0", False),
    ],
)
def test_releases_of_cann(first: str, other: str, same: bool) -> None:
    assert same_cann_release(first, other) is same


@pytest.mark.parametrize(
    ("version", "base"),
    [("2.7.1.post4", "2.7.1"), ("2.10.0+cpu", "2.10.0"), ("2.1.0.rc1", "2.1.0"), ("2.1.0rc1", "2.1.0"), ("main", "")],
)
def test_the_release_that_a_version_builds_on(version: str, base: str) -> None:
    assert base_version(version) == base


@pytest.mark.parametrize(
    ("torch_npu", "cann"),
    [("2.7.1.post4", "9.0.0"), ("2.1.0", "7.0.0"), ("2.1.0rc1", "7.0.RC1"), ("2.7.1+git12", "8.3.RC1"), ("3.0.0", "")],
)
def test_the_cann_of_a_torch_npu(torch_npu: str, cann: str) -> None:
    assert cann_for_release("torch_npu", torch_npu) == cann


@given(st.binary(max_size=200))
def test_noise_is_never_a_version(noise: bytes) -> None:
    text = noise.decode("utf-8", "replace")
    assert isinstance(files(text), Absent)
    assert isinstance(answered(CannVersion, [tree("/a", text)]), Unreadable)
    assert isinstance(learned(CannVersion, {"": Output(out=text)}), Absent)


def test_an_installation_file_that_is_an_empty_folder_hides_no_version() -> None:
    """Docker makes such a folder of a file that it mounts and the machine does not have."""
    folder = Output(ended="error", err="Is a directory")
    texts = {DRIVER: Output(out=DRIVER_TEXT), FIRMWARE: Output(out=FIRMWARE_TEXT), INSTALL: folder}
    versions = learned(NpuVersions, texts)
    assert (versions.driver, versions.firmware, versions.install_status) == ("25.5.2", "7.1.0.11.220", None)
    refused = {**texts, INSTALL: Output(ended="error", err="Permission denied")}
    assert isinstance(learned(NpuVersions, refused), Unreadable)
