"""What a host answered when the hosts of the job tried their network: its own attempts, and its own ports."""

from __future__ import annotations

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, network_test
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

MAX_TEST_HOSTS = 10_000


class NetworkAnswer(Fact, frozen=True):
    """The host's part of the network test, as `doctor.net` reads it.

    Raw output, as JSON::

        {"host": 0, "hosts": ["node1", "node2"], "ports": [["master", 29500], ["ephemeral", 0]], "mode": "quick",
         "seed": 7, "answer": {"rows": ["-o", "-d"], "listeners": [{"port": 0, "state": "listening"}]}}
    """

    probe = network_test()

    host: int
    """Its place in ``hosts``."""
    hosts: tuple[str, ...]
    """All hosts of the test, in rank order."""
    ports: tuple[tuple[str, int], ...]
    """Purpose and number of each tested port."""
    mode: str
    """quick or full."""
    seed: int
    """Of the schedule."""
    answer: dict[str, object]
    """Untrusted: `doctor.net.assemble.read_answer` reads it."""
    groups: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    """Kind, name and hosts of what share a part of the network, as the controller knows it."""
    gloo_place: int | None = None
    """Of its Gloo address among those of all hosts, the smallest first, where Gloo alone carries the job: it connects
    from the greater address to the smaller one."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> NetworkAnswer:
        data = answer.json()
        if not isinstance(data, dict):
            raise Unreadable("the network test's record is no object")
        if data.get("single"):
            raise Absent("only one host: there is no other to connect to")
        if "why" in data:
            raise Unreadable(str(data["why"]))
        try:
            value = msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise Unreadable(filled("the network test's record cannot be read: {0}", error)) from None
        if not 0 <= value.host < len(value.hosts) <= MAX_TEST_HOSTS:
            raise Unreadable(
                filled("host number {0} of {1} in the network test's record", value.host, len(value.hosts))
            )
        if [*map(len, value.rows)] != [len(value.hosts)] * len(value.ports):
            raise Unreadable("the network test's record has not a row of all hosts for each port")
        unknown = sum(row.count("?") for row in value.rows)
        if unknown:
            total = sum(len(row) - row.count(".") - row.count("-") for row in value.rows)
            text = filled(
                "{0} of {1} attempts were not made in time, or say nothing{2}", unknown, total, value.busy_text
            )
            value = msgspec.structs.replace(value, unread={"network test": text})
        return value

    @property
    def busy_text(self) -> str:
        """The first host that could not answer, and what kept it from it; empty where none is known."""
        hosts = self.answer.get("too_busy")
        for host, why in hosts.items() if isinstance(hosts, dict) else ():
            return filled(": on {0}, {1}", strip_control_chars(str(host), 60), strip_control_chars(str(why), 200))
        return ""

    @property
    def rows(self) -> list[str]:
        """For each port one letter for each target, as the host says; only what is of that form."""
        rows = self.answer.get("rows")
        return [row for row in rows if isinstance(row, str)] if isinstance(rows, list) else []
