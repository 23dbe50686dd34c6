"""The rank table as typed values: every form in one shape, with a list of its defects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.texts import filled

MAX_SERVER_ID = 64
"""Characters of a server_id."""

Form = Literal["1.0", "1.2", "group_list", "lab"]


_LIST_FIELDS = ("server_list", "device", "group_list", "instance_list", "devices")


class RankTableProblem(msgspec.Struct, frozen=True, order=True):
    """One place that violates the form."""

    kind: Literal["missing", "value", "unquoted"]
    """missing: a required field. value: there, and of another kind. unquoted: a number where HCCL takes text only."""
    path: str
    """Place in the table: ``server_list[1].device[3].rank_id``."""
    field: str
    """The last name of ``path``."""
    observed: str = ""
    expected: str = ""


class StatedCount(msgspec.Struct, frozen=True):
    """A number that the table states about itself, and what is there."""

    path: str
    stated: int
    actual: int


class Rank(msgspec.Struct, frozen=True):
    """One entry: a device of a host. Texts are as written, None where the field is not there or not readable."""

    path: str
    host: str
    """The server_id."""
    host_ip: str = ""
    rank_id: int | None = None
    device_id: int | None = None
    """The physical number: N of /dev/davinciN."""
    device_ips: tuple[str, ...] = ()
    """HCCL allows a comma list."""
    backup_ips: tuple[str, ...] = ()
    super_device_id: str | None = None
    super_pod_id: str = ""
    """Of the super pod that lists this host."""
    ports: dict[str, str] = {}
    """device_port, host_port, backup_device_port, device_vnic_port: those that are there."""

    def __str__(self) -> str:
        return self.path if self.rank_id is None else f"rank {self.rank_id}"


class Server(msgspec.Struct, frozen=True):
    """One host of the table."""

    path: str
    server_id: str
    host_ip: str = ""
    ranks: tuple[Rank, ...] = ()

    def coded_ids(self) -> dict[str, int]:
        """The super_device_id of each rank that the hardware's coding asks for, by the rank's path.

        The driver's public source: server << 22 | chip << 18 | die << 16 | device, device = 2 * chip + die. The server
        is the one that more than half of the entries name, at least two; empty where they do not follow that coding.
        """
        numbers = [sdid for rank in self.ranks if (sdid := coded_id(rank.super_device_id)) is not None]
        (server, times), *_ = Counter(number >> 22 for number in numbers).most_common(1) or [(0, 0)]
        if times < 2 or times * 2 <= len(self.ranks):
            return {}
        devices = {rank.path: rank.device_id for rank in self.ranks if rank.device_id is not None}
        return {path: server << 22 | n // 2 << 18 | n % 2 << 16 | n for path, n in devices.items()}


def coded_id(text: str | None) -> int | None:
    """A super_device_id that follows the hardware's coding, as a number.

    >>> coded_id("37814273"), coded_id("7")
    (37814273, None)
    """
    number = int(text) if text and text.isascii() and text.isdecimal() and len(text) < 11 else 0
    chip, die, device = number >> 18 & 15, number >> 16 & 3, number & 0xFFFF
    return number if 1 << 16 <= number < 1 << 32 and device == 2 * chip + die else None


class SuperPod(msgspec.Struct, frozen=True):
    """One entry of super_pod_list: the server_ids that it lists."""

    path: str
    super_pod_id: str
    servers: tuple[str, ...] = ()


class RankTable(msgspec.Struct, frozen=True):
    """A rank table of a known form. Made by `read_rank_table`."""

    path: str
    form: Form
    status: str
    servers: tuple[Server, ...]
    super_pods: tuple[SuperPod, ...] | None = None
    """None: the table has no super_pod_list."""
    counts: tuple[StatedCount, ...] = ()
    problems: tuple[RankTableProblem, ...] = ()

    @property
    def ranks(self) -> tuple[Rank, ...]:
        return tuple(rank for server in self.servers for rank in server.ranks)

    @property
    def has_rank_ids(self) -> bool:
        """The file itself gives rank ids; a ``group_list`` without ``deploy_mode`` leaves that to HCCL."""
        return self.form != "group_list"

    def edit(self, rank: Rank, field: str, number: object) -> str:
        """What to write in the file, and where; empty where it is not known."""
        template = 'In {0}, at {1} ({2} of {3}), write `"{4}": "{5}"`.'
        return "" if number is None else filled(template, self.path, rank.path, rank, rank.host, field, number)

    def require_fields(self, *fields: str) -> None:
        """For a check that found nothing wrong so far: whether it could read all that it needs.

        Raises: Unreadable when a list of the table or one of ``fields`` is missing or broken, or nothing is listed.
        """
        required = {*_LIST_FIELDS, *fields}
        unreadable_paths = [
            problem.path for problem in self.problems if problem.kind != "unquoted" and problem.field in required
        ]
        if unreadable_paths:
            places = filled("{0} places", len(unreadable_paths))
            raise Unreadable(
                filled("{0} could not be read: {1}", places, ", ".join(limit_items(unreadable_paths, 2))),
                "rank-table-field-missing",
            )
        if not self.ranks:
            raise Unreadable("the table lists nothing that can be read", "rank-table-field-missing")


def limit_items(items: Iterable[object], limit: int = 8) -> list[str]:
    """The first of a list that may be long, and how many more there are."""
    texts = [str(item) for item in items]
    return texts if len(texts) <= limit + 1 else [*texts[:limit], filled("{0} more", len(texts) - limit)]
