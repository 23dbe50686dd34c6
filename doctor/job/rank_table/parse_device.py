"""What all forms of a rank table have in common: taking values out of the JSON tree, and reading a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.engine.sanitize import printable
from doctor.job.rank_table.model import Problem, Rank
from doctor.job.rank_table.strict_json import Members, Unquoted

PORTS = ("device_port", "host_port", "backup_device_port", "device_vnic_port")


class Places:
    """Takes values out of the JSON tree; notes what is missing or of another kind, and goes on."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def text(self, where: Members, path: str, name: str, *, needed: bool = True) -> str | None:
        """A scalar as text. Numbers are taken too, and noted: HCCL accepts text only."""
        place = f"{path}.{name}".lstrip(".")
        if name not in where:
            if needed:
                self.problems.append(Problem("missing", place, name))
            return None
        value = where[name]
        if isinstance(value, Unquoted):
            self.problems.append(Problem("unquoted", place, name, printable(value, 40), f'"{printable(value, 40)}"'))
        elif not isinstance(value, str):
            self.problems.append(Problem("value", place, name, kind(value), "a text"))
            return None
        return printable(value)

    def number(self, where: Members, path: str, name: str) -> int | None:
        said = self.text(where, path, name)
        if said is None or re.fullmatch(r"[0-9]{1,10}", said, re.ASCII):
            return None if said is None else int(said)
        self.problems.append(Problem("value", f"{path}.{name}".lstrip("."), name, said, "a whole number from 0"))
        return None

    def name(self, where: Members, path: str, field: str, taken: set[str]) -> None:
        """A text that no other object may have."""
        said = self.text(where, path, field)
        if said in taken:
            self.problems.append(Problem("value", f"{path}.{field}", field, said, "a name of its own"))
        elif said is not None:
            taken.add(said)

    def items(self, where: Members, path: str, name: str) -> list[tuple[str, Members]]:
        """The objects of a list, each with its place."""
        place = f"{path}.{name}".lstrip(".")
        value = where.get(name)
        if name not in where:
            self.problems.append(Problem("missing", place, name))
        elif not isinstance(value, list) or not value:
            saw = "an empty list" if value == [] else kind(value)
            self.problems.append(Problem("value", place, name, saw, "a list with at least one entry"))
        return list(self._objects(value, place, name)) if isinstance(value, list) else []

    def _objects(self, entries: list[Any], place: str, name: str) -> Iterator[tuple[str, Members]]:
        for number, entry in enumerate(entries):
            if isinstance(entry, Members):
                yield f"{place}[{number}]", entry
            else:
                self.problems.append(
                    Problem("value", f"{place}[{number}]", name, kind(entry), "an object in braces {}")
                )


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {bool: "true or false", type(None): "null", list: "a list", Members: "an object"}
    return names.get(type(value), "a number" if isinstance(value, Unquoted) else "a text")


def read_device(entry: Members, path: str, places: Places, host: str, host_ip: str = "") -> Rank:
    """One entry but for its rank_id, which stands elsewhere in the old forms."""
    texts = {
        name: places.text(entry, path, name, needed=False)
        for name in ("device_ip", "backup_device_ip", "super_device_id", *PORTS)
    }
    return Rank(
        path,
        host,
        host_ip,
        device_id=places.number(entry, path, "device_id"),
        device_ips=split(texts["device_ip"]),
        backup_ips=split(texts["backup_device_ip"]),
        super_device_id=texts["super_device_id"],
        ports={name: said for name in PORTS if (said := texts[name]) is not None},
    )


def split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()
