"""rank-table-device-missing."""

from __future__ import annotations

import pytest

from doctor.engine.fact import PerHost, Unreadable
from doctor.engine.result import Finding
from tests.checks.devices import inventory
from tests.checks.tables import a1, check, table

NAME = "rank-table-device-missing"


def findings(**devices: tuple[int, ...]) -> list[Finding]:
    value = a1(2, 4)
    for number, server in enumerate(value["server_list"]):
        server["server_id"] = f"n{number}"
    live = {host: inventory(numbers) for host, numbers in devices.items()}
    return list(check(NAME).function(table=table(value), devices=PerHost(live), hosts=None))


def test_a_device_fell_off() -> None:
    (finding,) = findings(n0=tuple(range(8)), n1=(0, 2, 3))
    assert (str(finding), finding.hosts) == ("n1 has no device 1", ("n1",))
    assert finding.values["observed"] == "the host has 0, 2 and 3; the table lists 0, 1, 2 and 3"
    assert (bool(finding.values["lost"]), finding.values["edit"]) == (True, "")


def test_healthy() -> None:
    assert findings(n0=tuple(range(8)), n1=tuple(range(4))) == []


def test_no_host_of_the_table_is_unknown() -> None:
    with pytest.raises(Unreadable):
        findings(elsewhere=(0,))
