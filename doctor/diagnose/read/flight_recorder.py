"""Dumps of torch's and torch_npu's flight recorder: the last collectives of one rank.

Sources: pytorch/pytorch torch/csrc/distributed/c10d/FlightRecorder.hpp (pickle and JSON form, versions 1 and 2);
Ascend/pytorch torch_npu/csrc/distributed (the same fields, default name ``/tmp/hccl_trace_rank_N``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from doctor.diagnose.events import RecordedCollective, RecordedGroup, Recording
from doctor.diagnose.read.plain_pickle import MAX_BYTES, PickleRefusedError, is_pickle, read_plain_pickle
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

MAX_COLLECTIVES = 20_000
"""The last collectives of one dump that are kept."""
MAX_JSON_BYTES = 8 << 20
_MAX_SIZES = 64
"""Tensors of one collective whose sizes are kept."""
_RANKS = re.compile(r"\d{1,7}")


class NoRecordingError(Exception):
    """One line: why a file that begins as a dump of a flight recorder could not be read as one."""


def read_recording(blocks: Iterable[bytes]) -> Recording:
    """The collectives of a dump.

    Raises: NoRecordingError for one that is too large, damaged, no dump, or that holds more than plain values.
    """
    data = bytearray()
    for block in blocks:
        data += block
        limit = MAX_BYTES if is_pickle(bytes(data[:3])) else MAX_JSON_BYTES
        if len(data) > limit:
            raise NoRecordingError(filled("is a dump of more than {0} MiB: it was not read", limit >> 20))
    try:
        value = read_plain_pickle(bytes(data)) if is_pickle(bytes(data[:3])) else json.loads(bytes(data))
    except PickleRefusedError as error:
        raise NoRecordingError(filled("is a pickle that was not read: it {0}", error)) from None
    except (ValueError, RecursionError):
        raise NoRecordingError("begins as a dump of the flight recorder, and is no complete JSON") from None
    entries = value.get("entries") if isinstance(value, dict) else value
    if not isinstance(entries, list) or not (
        isinstance(value, dict) or (entries and isinstance(entries[0], dict) and "profiling_name" in entries[0])
    ):
        raise NoRecordingError("is a pickle, and no dump of the flight recorder: it was not read")
    return Recording(_groups(value if isinstance(value, dict) else {}, entries[-MAX_COLLECTIVES:]))


def _groups(head: dict[str, object], entries: list[Any]) -> list[RecordedGroup]:
    """The process groups, by name."""
    configured = _members(head.get("pg_config"))
    groups: dict[str, RecordedGroup] = {}
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("is_p2p") is True:
            continue
        sequence = _integer(entry.get("collective_seq_id", entry.get("seq_id")))
        if sequence is None:
            continue
        name, description = _name(entry)
        group = groups.get(name)
        if group is None:
            ranks = configured.get(name) or (next(iter(configured.values())) if len(configured) == 1 else [])
            title = " ".join(dict.fromkeys(word for word in (name, description) if word))
            group = groups[name] = RecordedGroup(printable(title, 80), ranks, 0, {})
        group.enqueued = max(group.enqueued, sequence)
        group.collectives[sequence] = _collective(sequence, entry)
    return [groups[name] for name in sorted(groups)]


def _members(configuration: Any) -> dict[str, list[int]]:
    """Ranks by name of the group; torch writes them as the text ``[0, 1, 2]``."""
    members: dict[str, list[int]] = {}
    for name, fields in list(configuration.items())[:MAX_COLLECTIVES] if isinstance(configuration, dict) else ():
        ranks = fields.get("ranks") if isinstance(fields, dict) else None
        words = ranks[:MAX_COLLECTIVES] if isinstance(ranks, list) else [ranks]
        text = " ".join(_scalar_text(word, 1 << 20) for word in words)
        members[_scalar_text(name)] = [int(number) for number in _RANKS.findall(text)]
    return members


def _name(entry: dict[str, object]) -> tuple[str, str]:
    group = entry.get("process_group")
    if isinstance(group, list | tuple) and len(group) >= 2:
        return _scalar_text(group[0]), _scalar_text(group[1])
    return _scalar_text(entry.get("pg_id")), ""


def _scalar_text(value: object, limit: int = 80) -> str:
    """A text or a number; empty for any other value: printed, lists that share their items can be endless."""
    return value[:limit] if isinstance(value, str) else "" if _integer(value) is None else str(value)


_SAME_SIZES = frozenset({"all_reduce", "broadcast", "_broadcast_oop", "_all_gather_base", "_reduce_scatter_base"})
"""Collectives in which every rank must give tensors of the same size."""


def _collective(sequence: int, entry: dict[str, object]) -> RecordedCollective:
    operation = printable(_scalar_text(entry.get("profiling_name")).partition(":")[2] or "?", 80)
    sizes = ""
    if operation in _SAME_SIZES:
        inputs = entry.get("input_sizes")
        numbers = inputs[:_MAX_SIZES] if isinstance(inputs, list) else []
        total = sum(_elements(shape) for shape in numbers)
        types = entry.get("input_dtypes")
        kind = _scalar_text(types[0], 20) if isinstance(types, list) and types else ""
        sizes = printable(f"{total} x {kind}" if kind else str(total), 60)
    ended = entry.get("state") == "completed" or entry.get("retired") is True
    return RecordedCollective(sequence, operation, sizes, ended)


def _elements(shape: Any) -> int:
    product = 1
    for extent in shape[:16] if isinstance(shape, list | tuple) else ():
        product *= max(0, min(_integer(extent) or 0, 1 << 40))
    return min(product, 1 << 62)


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 62 else None
