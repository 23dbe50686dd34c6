"""The super pod of a host, from the first chip that npu-smi shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Unreadable
from doctor.facts.hccn.super_pod import SuperPodId
from tests.hosts.smi import emulate

NOT_GIVEN = {f"{npu}/elsewhere": "" for npu in (0, 1, 2, 3)}
"""Devices that a container was not given: two cards of A3, four of A2."""


@pytest.mark.parametrize(
    "faults", [{}, NOT_GIVEN, {**NOT_GIVEN, "4/elsewhere": ""}], ids=["all", "two cards less", "and a die"]
)
def test_the_first_chip_that_is_there(tmp_path: Path, faults: dict[str, str]) -> None:
    pod = read_fact(emulate(tmp_path, SuperPodId, faults=faults, family="A3", super_pod=3, server_index=9), SuperPodId)
    assert (pod.id, pod.server_index) == (3, 9)


@pytest.mark.parametrize("faults", [{}, NOT_GIVEN], ids=["all", "four cards less"])
def test_a_product_without_super_pods(tmp_path: Path, faults: dict[str, str]) -> None:
    """A container with a part of the cards is no reason for doubt."""
    pod: Any = read_fact(emulate(tmp_path, SuperPodId, faults=faults, family="A2"), SuperPodId)
    assert isinstance(pod, Absent)
    assert not isinstance(pod, Unreadable)
