"""Rank tables of other programs: version 2.0 of the 950 family, and the tables of serving stacks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from doctor.engine.addresses import parse_address
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.rank_table.strict_json import JsonObject, NumberText

OtherForm = Literal["2.0", "vLLM", "MindIE"]

ENTRY_FORMS: dict[str, OtherForm] = {
    "prefill_device_list": "vLLM",
    "decode_device_list": "vLLM",
    "server_group_list": "MindIE",
}
"""The list that a form has and no other form does."""

MAX_RANKS = 65536
MAX_LAYER = 7
MAX_NUMBER = 64
"""Of local_id and device_id in a table of version 2.0."""


class FormViolation(msgspec.Struct, frozen=True, order=True):
    """One list_path that breaks a rule of the form."""

    path: str
    observed: str
    expected: str


def other_form(tree: JsonObject) -> OtherForm | None:
    """The form of a table that HCCL 1.x does not read; None for any other."""
    for field, form in ENTRY_FORMS.items():
        if field in tree:
            return form
    return "2.0" if tree.get("version") == "2.0" and "rank_list" in tree else None


def form_violations(tree: JsonObject, form: OtherForm) -> list[FormViolation]:
    """Where the table breaks the public rules of its form."""
    rules = {"2.0": _version_2, "vLLM": _vllm, "MindIE": _mindie}
    return sorted(set(rules[form](tree)))


def _version_2(tree: JsonObject) -> Iterator[FormViolation]:
    yield from _status(tree, needed=False)
    ranks, problems = _objects(tree, "", "rank_list")
    yield from problems
    yield from _count(tree, "rank_count", len(ranks), problems)
    paths_by_rank: dict[int, str] = {}
    for path, rank in ranks:
        numbers = {}
        for field, highest in (("rank_id", MAX_RANKS), ("local_id", MAX_NUMBER), ("device_id", MAX_NUMBER)):
            numbers[field], violations = _number(rank, path, field, highest)
            yield from violations
        rank_id = numbers["rank_id"]
        if rank_id is not None and rank_id in paths_by_rank:
            yield FormViolation(
                f"{path}.rank_id", str(rank_id), filled("a number that {0} does not have", paths_by_rank[rank_id])
            )
        elif rank_id is not None:
            paths_by_rank[rank_id] = path
        levels, problems = _objects(rank, path, "level_list")
        yield from problems
        previous = -1
        for list_path, level in levels:
            layer, violations = _number(level, list_path, "net_layer", MAX_LAYER)
            yield from violations
            if layer is not None and (layer <= previous or (previous == -1 and layer)):
                yield FormViolation(f"{list_path}.net_layer", str(layer), "layers from 0 on, in ascending order")
            previous = previous if layer is None else layer
            addresses, problems = _objects(level, list_path, "rank_addr_list")
            yield from problems
            for parent, address in addresses:
                yield from _fabric_address(address, parent)
    absent = sorted(set(range(len(ranks))) - set(paths_by_rank))
    if ranks and absent and len(paths_by_rank) == len(ranks):
        yield FormViolation(
            "rank_list", filled("no rank {0}", absent[0]), filled("rank_id 0 to {0}, without gaps", len(ranks) - 1)
        )


def _fabric_address(entry: JsonObject, path: str) -> Iterator[FormViolation]:
    kind, address = _text(entry.get("addr_type")), _text(entry.get("addr"))
    if kind is None or address is None:
        yield FormViolation(path, "addr_type or addr is missing", "both, as text")
        return
    valid = {
        "EID": bool(re.fullmatch(r"[0-9A-Fa-f]{32}", address)) or _is_ip(address, 6),
        "IPV4": _is_ip(address, 4),
        "IPV6": _is_ip(address, 6),
    }.get(kind.upper())
    if address and valid is False:  # the operator of MindCluster leaves the address of the host's layer empty
        expected = "32 hexadecimal digits" if kind.upper() == "EID" else "an address of the stated type"
        yield FormViolation(f"{path}.addr", address, expected)


def _is_ip(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _vllm(tree: JsonObject) -> Iterator[FormViolation]:
    yield from _status(tree, needed=False)
    owners: dict[tuple[str, str], str] = {}
    for field in ("prefill_device_list", "decode_device_list"):
        devices, problems = _objects(tree, "", field)
        yield from problems
        for path, device in devices:
            for name in ("server_id", "device_id", "device_ip", "cluster_id"):
                if _text(device.get(name)) is None:
                    yield FormViolation(f"{path}.{name}", "not there", "a text")
            yield from _address(device, path, "device_ip")
            yield from _repeated(device, path, ("cluster_id",), owners)
            yield from _repeated(device, path, ("server_id", "device_id"), owners)
            yield from _repeated(device, path, ("super_pod_id", "server_id", "device_ip"), owners)


def _mindie(tree: JsonObject) -> Iterator[FormViolation]:
    yield from _status(tree, needed=True)
    owners: dict[tuple[str, str], str] = {}
    groups, problems = _objects(tree, "", "server_group_list")
    yield from problems
    for path, group in groups:
        yield from _repeated(group, path, ("group_id",), owners)
        servers, problems = _objects(group, path, "server_list", empty=True)
        yield from problems
        yield from _count(group, "server_count", len(servers), problems, path, needed=False)
        for list_path, server in servers:
            yield from _address(server, list_path, "server_ip")
            devices, problems = _objects(server, list_path, "device") if "device" in server else ([], [])
            yield from problems
            for parent, device in devices:
                yield from _address(device, parent, "device_ip")
                if _text(device.get("device_id")) is None:
                    yield FormViolation(f"{parent}.device_id", "not there", "a text")
                marked = JsonObject({**device, "server_ip": server.get("server_ip")})
                yield from _repeated(marked, parent, ("server_ip", "device_id"), owners)


def _status(tree: JsonObject, *, needed: bool) -> Iterator[FormViolation]:
    status = _text(tree.get("status"))
    if status != "completed" and (needed or "status" in tree):
        yield FormViolation("status", status or "not there", "completed")


def _count(
    parent: JsonObject, field: str, actual: int, problems: list[FormViolation], path: str = "", *, needed: bool = True
) -> Iterator[FormViolation]:
    stated = _text(parent.get(field))
    if problems or (stated is None and not needed):
        return
    if stated is None or not re.fullmatch(r"[0-9]{1,6}", stated) or int(stated) != actual:
        yield FormViolation(
            f"{path}.{field}".lstrip("."), stated or "not there", filled("{0}, as many as are listed", actual)
        )


def _objects(
    parent: JsonObject, path: str, field: str, *, empty: bool = False
) -> tuple[list[tuple[str, JsonObject]], list[FormViolation]]:
    """The objects of a list with their places, and what is violations with the list."""
    list_path = f"{path}.{field}".lstrip(".")
    value = parent.get(field)
    if not isinstance(value, list) or (not value and not empty):
        return [], [FormViolation(list_path, "not there" if field not in parent else "no list", "a list of objects")]
    entries = [(f"{list_path}[{number}]", entry) for number, entry in enumerate(value) if isinstance(entry, JsonObject)]
    violations = (
        [FormViolation(list_path, "an entry that is no object", "a list of objects")]
        if len(entries) < len(value)
        else []
    )
    return entries, violations


def _number(parent: JsonObject, path: str, field: str, highest: int) -> tuple[int | None, list[FormViolation]]:
    text = _text(parent.get(field))
    if text is not None and re.fullmatch(r"[0-9]{1,6}", text) and int(text) <= highest:
        return int(text), []
    return None, [
        FormViolation(f"{path}.{field}", text or "not there", filled("a whole number from 0 to {0}", highest))
    ]


def _text(value: Any) -> str | None:
    """A scalar as text, quoted or not; None for anything else."""
    return printable(value, 64) if isinstance(value, (str, NumberText)) else None


def _address(parent: JsonObject, path: str, field: str) -> Iterator[FormViolation]:
    address = _text(parent.get(field))
    if address and not parse_address(address):
        yield FormViolation(f"{path}.{field}", address, "an IPv4 or IPv6 address")


def _repeated(
    parent: JsonObject, path: str, fields: tuple[str, ...], owners: dict[tuple[str, str], str]
) -> Iterator[FormViolation]:
    """A value, or values together, that only one entry may have."""
    texts = [_text(parent.get(field)) for field in fields]
    if fields[-1] not in parent or not texts[-1]:
        return
    key = ("+".join(fields), "|".join(text or "" for text in texts))
    if key in owners:
        yield FormViolation(f"{path}.{fields[-1]}", texts[-1], filled("a value that {0} does not have", owners[key]))
    owners.setdefault(key, path)
