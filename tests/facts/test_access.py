"""Who may open the NPUs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.access import JobAccess, list_device_files
from tests.facts.answers import answered, learned

FILE = {"mode": "660", "user": "HwHiAiUser", "group": "HwHiAiUser", "open": False}


def access_answer(*groups: str, **files: dict[str, Any]) -> dict[str, Any]:
    return {"uid": 1000, "user": "ann", "groups": list(groups), "files": {f"/dev/{k}": v for k, v in files.items()}}


def test_the_files_that_may_not_be_opened() -> None:
    access = answered(JobAccess, access_answer("ann", davinci0=FILE, hisi_hdc={**FILE, "mode": "666", "open": True}))
    assert access.denied_files == ("/dev/davinci0",)
    assert access.groups == ("ann",)


def test_a_host_without_device_files() -> None:
    assert type(answered(JobAccess, access_answer("ann"))) is Absent


def test_what_the_function_returns_is_what_is_read() -> None:
    assert type(answered(JobAccess, list_device_files({}))) in (Absent, JobAccess)


@given(st.one_of(st.none(), st.integers(), st.text(), st.dictionaries(st.sampled_from(["files", "uid"]), st.text())))
def test_anything_else_is_unreadable(value: Any) -> None:
    assert isinstance(answered(JobAccess, value), Absent)


@given(st.binary(max_size=200))
def test_noise_is_unreadable(noise: bytes) -> None:
    assert isinstance(learned(JobAccess, {"": Output(out=noise.decode("utf-8", "replace"))}), Absent)


def test_a_function_that_failed_is_unreadable() -> None:
    failed = Output(code=1, err="PermissionError: [Errno 13]\n")
    assert isinstance(learned(JobAccess, {"": failed}), Unreadable)
