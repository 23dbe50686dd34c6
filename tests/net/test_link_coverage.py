"""How much of the links a run has tried is said with it: each link once, whichever side began."""

from __future__ import annotations

import json

from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.hccn.pings import DevicePings
from doctor.session.link_coverage import link_coverage

ANSWER = "3 packets transmitted, 3 received, 0.00% packet loss"


def record(place: int, pinged: list[tuple[int, int]], text: str = ANSWER) -> HostRecord:
    """A host with NPU 0 and 1 that has pinged (number of the NPU, place of the other host)."""
    addresses = {str(npu): Output(out=f"ipaddr:29.{npu}.0.{place + 1}\nnetmask:255.255.0.0\n") for npu in range(2)}
    pings = [[npu, f"29.{npu}.0.{other + 1}", text] for npu, other in pinged]
    outputs = {"DeviceAddresses": addresses, "DevicePings": {"": Output(out=json.dumps(pings))}}
    return HostRecord(Visit(), outputs)


def test_a_link_counts_once_and_only_where_something_came_of_it() -> None:
    assert (DeviceAddresses.output_name(), DevicePings.output_name()) == ("DeviceAddresses", "DevicePings")
    records = {
        "a": record(0, [(0, 1), (1, 1), (0, 9)]),  # the last is no NPU of the run
        "b": record(1, [(0, 0), (0, 2)]),
        "c": record(2, [(1, 0)], "hccn_tool is busy"),
    }
    (line,) = link_coverage(records)
    assert line == "NPU pings: tried 3 of 6 links between NPUs of the same number, none of these failed"


def test_a_run_without_them_says_nothing() -> None:
    bare = {host: HostRecord(Visit(), {}) for host in "ab"}
    assert link_coverage(bare) == ()
    assert link_coverage({"a": record(0, [])}) == ()


def test_of_hosts_with_one_address_no_link_is_tried_and_all_count() -> None:
    both = {"a": record(0, []), "b": record(1, [(0, 0), (1, 0)]), "c": record(0, [(0, 1), (1, 1)])}
    (line,) = link_coverage(both)
    assert line == "NPU pings: tried 2 of 6 links between NPUs of the same number, none of these failed"


def with_npus(host: HostRecord, count: int = 2) -> HostRecord:
    """The host with the device files of so many NPUs."""
    files = [f"/dev/davinci{npu}" for npu in range(count)]
    inventory = {"pci": {}, "files": files, "refused": [], "tools": [], "chips": None, "newer": []}
    return HostRecord(host.visit, {**host.outputs, "NpuInventory": {"": Output(out=json.dumps(inventory))}})


def test_links_of_npus_without_an_address_and_of_silent_hosts_count_as_not_tried() -> None:
    records = {
        "a": with_npus(record(0, [(0, 1), (1, 1)])),
        "b": with_npus(record(1, [(0, 0), (1, 0)])),
        "c": with_npus(HostRecord(Visit(), {})),  # hccn_tool is not installed
    }
    (line,) = link_coverage(records)
    assert line == "NPU pings: tried 2 of 6 links between NPUs of the same number, none of these failed"
    (line,) = link_coverage({**records, "d": HostRecord(Visit("timeout", "no answer"))})
    assert line == "NPU pings: tried 2 of 12 links between NPUs of the same number, none of these failed"


def test_of_one_link_alone_nothing_is_in_the_plural() -> None:
    """NPU 0 of two hosts."""
    for text, outcome in ((ANSWER, "it did not fail"), (ANSWER.replace("3 received", "1 received"), "it lost packets")):
        records = {"a": record(0, [(0, 1)], text), "b": record(1, [])}
        for host in records.values():
            del host.outputs["DeviceAddresses"]["1"]
        assert link_coverage(records) == (f"NPU pings: tried the only link, {outcome}",)
