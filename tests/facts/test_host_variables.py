"""What is read of the shell on a host."""

from __future__ import annotations

import pytest

from doctor.engine.fact import Absent
from doctor.facts.host_variables import StartupVariables, read_startup_variables
from tests.facts.answers import answered


def test_variables_of_communication_alone_each_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"GLOO_SOCKET_IFNAME": "e" * 9000, "NCCL_TOKEN": "x", "HOME": "/root", "MASTER_ADDR": "a", "NCCL_ALGO": ""}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert isinstance(answered(StartupVariables, read_startup_variables({})), Absent)
    variables = read_startup_variables({"by_login": True}) or {}
    assert {"HOME", "MASTER_ADDR"}.isdisjoint(variables)
    assert len(variables["GLOO_SOCKET_IFNAME"]) == 256


def test_no_secret_and_nothing_empty() -> None:
    variables = {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_TOKEN": "x", "NCCL_ALGO": "", "PATH": "/bin"}
    assert answered(StartupVariables, variables).variables == {"GLOO_SOCKET_IFNAME": "eth1"}
