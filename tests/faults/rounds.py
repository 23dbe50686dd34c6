"""Faults that only the second round sees: from host to host."""

from tests.faults import Row

ROWS = [
    # The link of one NPU is down: its partners lose packets too, and it alone is named.
    Row("device-unreachable", "echo DOWN >/run/npu/5/link", values={"npu": 5, "tried": 3}, also=("device-link-down",)),
]
