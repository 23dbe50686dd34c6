"""What all forms of a rank table have in common: taking values out of the JSON tree, and reading a device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from doctor.engine.sanitize import printable
from doctor.job.rank_table.model import Rank, RankTableProblem
from doctor.job.rank_table.strict_json import JsonObject, NumberText

PORT_FIELDS = ("device_port", "host_port", "backup_device_port", "device_vnic_port")


class TreeReader:
    """Takes values out of the JSON tree; notes what is missing or of another kind, and continues."""

    def __init__(self) -> None:
        self.problems: list[RankTableProblem] = []

    def text(self, where: JsonObject, path: str, name: str, *, needed: bool = True) -> str | None:
        """A scalar as text. Numbers are taken too, and noted: HCCL accepts text only."""
        place = f"{path}.{name}".lstrip(".")
        if name not in where:
            if needed:
                self.problems.append(RankTableProblem("missing", place, name))
            return None
        value = where[name]
        if isinstance(value, NumberText):
            self.problems.append(
                RankTableProblem("unquoted", place, name, printable(value, 40), f'"{printable(value, 40)}"')
            )
        elif not isinstance(value, str):
            self.problems.append(RankTableProblem("value", place, name, json_type_name(value), "a text"))
            return None
        return printable(value)

    def number(self, where: JsonObject, path: str, name: str) -> int | None:
        text = self.text(where, path, name)
        if text is None or re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
            return None if text is None else int(text)
        self.problems.append(
            RankTableProblem("value", f"{path}.{name}".lstrip("."), name, text, "a whole number from 0")
        )
        return None

    def unique_text(self, where: JsonObject, path: str, field: str, taken: set[str]) -> None:
        """A text that no other object may have."""
        text = self.text(where, path, field)
        if text in taken:
            self.problems.append(RankTableProblem("value", f"{path}.{field}", field, text, "a unique name"))
        elif text is not None:
            taken.add(text)

    def items(self, where: JsonObject, path: str, name: str) -> list[tuple[str, JsonObject]]:
        """The objects of a list, each with its place."""
        place = f"{path}.{name}".lstrip(".")
        value = where.get(name)
        if name not in where:
            self.problems.append(RankTableProblem("missing", place, name))
        elif not isinstance(value, list) or not value:
            observed = "an empty list" if value == [] else json_type_name(value)
            self.problems.append(RankTableProblem("value", place, name, observed, "a list with at least one entry"))
        return list(self._iter_objects(value, place, name)) if isinstance(value, list) else []

    def _iter_objects(self, entries: list[Any], place: str, name: str) -> Iterator[tuple[str, JsonObject]]:
        for number, entry in enumerate(entries):
            if isinstance(entry, JsonObject):
                yield f"{place}[{number}]", entry
            else:
                self.problems.append(
                    RankTableProblem(
                        "value", f"{place}[{number}]", name, json_type_name(entry), "an object in braces {}"
                    )
                )


def json_type_name(value: Any) -> str:
    """The name of a JSON value's type."""
    names = {bool: "true or false", type(None): "null", list: "a list", JsonObject: "an object"}
    return names.get(type(value), "a number" if isinstance(value, NumberText) else "a text")


def read_device(entry: JsonObject, path: str, reader: TreeReader, host: str, host_ip: str = "") -> Rank:
    """One entry but for its rank_id, which stands elsewhere in the old forms."""
    texts = {
        name: reader.text(entry, path, name, needed=False)
        for name in ("device_ip", "backup_device_ip", "super_device_id", *PORT_FIELDS)
    }
    return Rank(
        path,
        host,
        host_ip,
        device_id=reader.number(entry, path, "device_id"),
        device_ips=split_list(texts["device_ip"]),
        backup_ips=split_list(texts["backup_device_ip"]),
        super_device_id=texts["super_device_id"],
        ports={name: port for name in PORT_FIELDS if (port := texts[name]) is not None},
    )


def split_list(text: str | None) -> tuple[str, ...]:
    """The parts of a list with commas, without spaces around them; none for None and the empty text."""
    return tuple(part.strip() for part in text.split(",")) if text else ()
