"""What driver-install-incomplete finds."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Output, Unreadable
from doctor.facts.versions import DRIVER, FIRMWARE, INSTALL, NpuVersions
from tests.checks.devices import of, skipped, table, versions
from tests.facts.answers import learned

look = of("driver_install_incomplete")


def test_a_complete_installation() -> None:
    assert look(versions(), table()) == look(versions(), None) == []


def test_a_status_that_is_not_complete() -> None:
    (finding,) = look(versions(install_status="failed"), table())
    assert str(finding) == "the installation of NPU driver 25.5.2 is incomplete"
    assert (finding.values["observed"], finding.values["expected"]) == ("failed", "complete")


def test_no_status_and_the_warning_of_npu_smi() -> None:
    (finding,) = look(versions(install_status=None), table(incomplete_install=True))
    assert finding.values["observed"] == "no status"


def test_an_older_driver_notes_no_status() -> None:
    assert skipped(look, versions(install_status=None), table()) == "this driver records no installation status"
    assert skipped(look, versions(install_status=None), None)


@pytest.mark.parametrize("text", ["", "Permission denied, try again.\n", "\0\0"])
def test_a_note_that_is_not_understood_says_nothing_of_the_installation(text: str) -> None:
    files = {DRIVER: Output(out="Version=25.5.2\n"), FIRMWARE: Output(ended="absent"), INSTALL: Output(out=text)}
    value = learned(NpuVersions, files)
    assert isinstance(value, NpuVersions)
    with pytest.raises(Unreadable, match=INSTALL):
        look(value, table())


def test_an_empty_folder_that_an_engine_made_of_the_note_is_no_broken_installation() -> None:
    """A container engine makes a folder of a file that it mounts and the machine does not have; npu-smi warns then."""
    made = versions(install_status=None, is_note_a_folder=True)
    assert "empty folder" in skipped(look, made, table(incomplete_install=True))
