"""The rank table as typed values: every form in one shape, with a list of its defects."""

from __future__ import annotations

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

    def require_fields(self, *fields: str) -> None:
        """For a check that found nothing wrong so far: whether it could read all that it needs.

        Raises: Unreadable when a list of the table or one of ``fields`` is missing or broken, or nothing is listed.
        """
        required = {*_LIST_FIELDS, *fields}
        unreadable_paths = [
            problem.path for problem in self.problems if problem.kind != "unquoted" and problem.field in required
        ]
        if unreadable_paths:
            places = "1 place" if len(unreadable_paths) == 1 else filled("{0} places", len(unreadable_paths))
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
