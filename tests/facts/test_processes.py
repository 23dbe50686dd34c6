"""Who holds the NPUs."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output
from doctor.facts.processes import DeviceUser, NpuProcesses, list_device_users
from tests.facts.answers import answered, learned

PYTHON = {"pid": 42, "name": "python3", "user": "ann", "seconds": 90, "npus": [0, 3]}


def test_the_holders() -> None:
    value = answered(NpuProcesses, {"there": True, "holders": [{**PYTHON, "pid": 99}, PYTHON]})
    assert value == NpuProcesses(
        device_users=(DeviceUser(42, "python3", "ann", 90, (0, 3)), DeviceUser(99, "python3", "ann", 90, (0, 3))),
    )
    assert value.by_pid(99).pid == 99
    assert value.by_pid(1) is None


def test_a_host_without_npus() -> None:
    assert type(answered(NpuProcesses, {"there": False, "holders": []})) is Absent


def test_what_the_function_returns_is_what_is_read() -> None:
    assert type(answered(NpuProcesses, {**list_device_users({}), "there": True})) is NpuProcesses


@given(st.one_of(st.none(), st.text(), st.fixed_dictionaries({"there": st.just(True), "holders": st.text()})))
def test_anything_else_is_unreadable(value: Any) -> None:
    assert isinstance(answered(NpuProcesses, value), Absent)


@given(st.binary(max_size=200))
def test_noise_is_unreadable(noise: bytes) -> None:
    assert isinstance(learned(NpuProcesses, {"": Output(out=noise.decode("utf-8", "replace"))}), Absent)
