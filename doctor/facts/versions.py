"""Versions of the NPU driver, its firmware and CANN, from the files that their installers leave."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from doctor.analysis.majority import agreed_value
from doctor.engine.check import once_per_fleet
from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask, read
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.engine.version_matrix import in_version_range
from doctor.facts.gpu import GpuCards
from doctor.facts.npu import NpuProduct
from doctor.facts.python_env import PythonEnv
from doctor.remote.runtime.reading import matching_paths

DRIVER = "/usr/local/Ascend/driver/version.info"
FIRMWARE = "/usr/local/Ascend/firmware/version.info"
INSTALL = "/etc/ascend_install.info"


def _parse_fields(text: str) -> dict[str, str]:
    """``name=value`` lines, without the spaces around them."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parse_version(text: str, path: str) -> str:
    version = _parse_fields(text).get("Version", "")
    if not re.fullmatch(r"\d[\w.+-]{0,60}", version, re.ASCII):
        raise Unreadable(filled("{0} contains no version", path))
    return version


def package_values(finding: Finding, products: Mapping[str, NpuProduct] | None) -> dict[str, str | None]:
    """Of a finding that hosts differ in the version of a package: the family in its name, and which way it changes."""
    product = products.get(finding.hosts[0]) if products else None
    observed, expected = (str(finding.values.get(name, "")) for name in ("observed", "expected"))
    try:
        older = expected and in_version_range(observed, "0", expected)
        change = "" if not expected else "That is an upgrade." if older else "That is a downgrade."
    except ValueError:
        change = ""
    return {"package": product.package if product else None, "change": change}


def driver_to_install(cards: GpuCards, fleet: Mapping[str, GpuCards] | None) -> str | None:
    """The version of the loaded driver, else the one that most of several other hosts have; None: not known."""
    return cards.driver_version or (_agreed_driver(fleet) if fleet else None)


@once_per_fleet
def _agreed_driver(fleet: Mapping[str, GpuCards]) -> str | None:
    return agreed_value(version for cards in fleet.values() if (version := cards.driver_version))


class NpuVersions(Fact, frozen=True):
    """The installed NPU driver and firmware, and how their installation ended.

    Raw output, from ``/usr/local/Ascend/driver/version.info``::

        Version=25.5.2
        compatible_version_fw=[7.0.0,8.9.9]

    Raw output, from ``/usr/local/Ascend/firmware/version.info``::

        Version=7.1.0.11.220
        compatible_version_drv=[23.0.0,25.9.9]

    Raw output, from ``/etc/ascend_install.info``::

        UserName=HwHiAiUser
        UserGroup=HwHiAiUser
        Driver_Install_Type=full
        Driver_Install_Status=complete
    """

    probe = read(DRIVER, FIRMWARE, INSTALL)

    driver: str
    firmware: str | None
    """None: the host has no firmware file."""
    firmware_ranges: tuple[tuple[str, str], ...]
    """First and last firmware that the driver declares compatible; empty when it declares none."""
    install_status: str | None
    """``complete`` when the driver's installation ended well; None when the installer's note does not say; empty when
    the note is there and is not understood."""
    is_note_a_folder: bool = False
    """An engine made an empty folder of the installer's note, which it was to mount and did not find."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NpuVersions:
        # Docker makes an empty folder of a file that it mounts and the machine does not have.
        is_folder = answer[INSTALL].ended == "error" and "directory" in answer[INSTALL].err
        is_absent = answer[INSTALL].ended == "absent"
        install = {} if is_folder else _parse_fields(_optional_text(answer, INSTALL) or "")
        if answer[DRIVER].ended == "absent":
            where = install.get("Driver_Install_Path_Param", "/usr/local/Ascend")
            if where.rstrip("/") != "/usr/local/Ascend":
                raise Unreadable(filled("the driver is installed under {0}, not /usr/local/Ascend", where))
            raise Absent(filled("no NPU driver is installed: {0}", answer[DRIVER].err))
        text = answer.text(DRIVER)
        firmware = _optional_text(answer, FIRMWARE)
        ranges = re.findall(r"\[\s*([\w.]+)\s*,\s*([\w.]+)\s*\]", _parse_fields(text).get("compatible_version_fw", ""))
        return cls(
            driver=_parse_version(text, DRIVER),
            firmware=_parse_version(firmware, FIRMWARE) if firmware is not None else None,
            firmware_ranges=tuple(ranges),
            install_status=install.get("Driver_Install_Status", None if install or is_folder or is_absent else ""),
            is_note_a_folder=is_folder,
        )


def _optional_text(answer: ProbeAnswer, path: str) -> str | None:
    """A file's text; None when it does not exist. Raises: Unreadable."""
    return None if answer[path].ended == "absent" else answer.text(path)


def find_cann(arguments: ProbeArguments) -> list[Any]:
    """Runs on the host: the version files of every CANN that is installed."""
    home = os.environ.get("HOME", "")
    roots = [os.environ.get("ASCEND_HOME_PATH", ""), os.environ.get("ASCEND_TOOLKIT_HOME", "")]
    for top in ("/usr/local/Ascend", home + "/Ascend"):
        roots += [top + part for part in ("/cann", "/ascend-toolkit/latest", "/nnae/latest", "/latest")]
    trees = []
    for root in [root for root in roots if root]:
        names = ["/ascend_toolkit_install.info", "/*-linux/ascend_toolkit_install.info", "/ascend_nnae_install.info"]
        paths = [path for name in names for path in matching_paths(root + name)]
        for path in [*paths, root + "/version.cfg"]:
            try:
                with open(path, errors="replace") as file:
                    trees.append({"root": root, "path": path, "text": file.read(16384)})
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                trees.append({"root": root, "path": path, "error": error.strerror or "not readable"})
    return trees


class CannVersion(Fact, frozen=True):
    r"""The CANN that the job gets: that of its environment, else the one that ``latest`` points to.

    Raw output, as JSON::

        [{"root": "/usr/local/Ascend/cann", "path": "/usr/local/Ascend/cann/version.cfg",
          "text": "runtime_running_version=[7.6.0.1.220:8.0.0]\ntoolkit_running_version=[7.6.0.1.220:8.0.0]\n"}]
    """

    probe = ask(find_cann, job=True)

    version: str
    path: str
    """The folder that it was found in."""
    installed: dict[str, str]
    """All that were found, by folder."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> CannVersion:
        installed: dict[str, str] = {}
        silent: dict[str, str] = {}
        for tree in answer.json():
            if "error" in tree:
                silent[tree["path"]] = tree["error"]
            elif tree_version := _parse_cann_version(tree["text"]):
                installed.setdefault(tree["root"], tree_version)
            else:
                silent[tree["path"]] = "contains no version"
        if installed:
            root = next(iter(installed))
            return cls(version=installed[root], path=root, installed=installed)
        if silent:
            raise Unreadable(joined("; ", (filled("{0}: {1}", path, why) for path, why in silent.items())))
        raise Absent("CANN is not installed where the job runs")


class RocmVersion(Fact, frozen=True):
    """The ROCm that is installed where the job runs.

    Raw output, from /opt/rocm/.info/version::

        6.4.1-83
    """

    probe = read("/opt/rocm/.info/version", job=True, limit=4096)

    version: str

    @classmethod
    def read(cls, answer: ProbeAnswer) -> RocmVersion:
        text = answer.text("/opt/rocm/.info/version").strip()
        if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}(-[\w.~]{1,40})?", text, re.ASCII):
            raise Unreadable(filled("{0}: expected a version, as 6.4.1-83", "/opt/rocm/.info/version"))
        return cls(version=text)


def rocm_of_job(python: PythonEnv | None, installed: RocmVersion | None) -> tuple[str, str]:
    """The ROCm that the job uses, and where it is from: torch's own, else the installed one; empty without both."""
    torch = python.rocm_version if python else ""
    if torch:
        return torch, "torch"
    return (installed.version, "/opt/rocm") if installed else ("", "")


def _parse_cann_version(text: str) -> str:
    """From an install.info (``version=8.1.RC1``) or a version.cfg (``..._running_version=[7.6.0.1.220:8.0.0]``)."""
    fields = _parse_fields(text)
    version = fields.get("version", "")
    for name in ("toolkit_running_version", "runtime_running_version"):
        match = re.fullmatch(r"\[.*:([^:\]]+)\]", fields.get(name, ""))
        version = version or (match[1] if match else "")
    return version if re.fullmatch(r"\d[\w.+-]{0,60}", version, re.ASCII) else ""
