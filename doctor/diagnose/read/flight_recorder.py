"""Dumps of torch's and torch_npu's flight recorder: the last collectives of one rank.

A dump is a pickle, and nothing in it is executed: only the operations that make dictionaries, lists, tuples, texts,
numbers, booleans and None are known; every other one, above all those that name a class or call it, is refused. Keys
are texts and numbers, so that no deep key is hashed.

Sources: pytorch/pytorch torch/csrc/distributed/c10d/FlightRecorder.hpp (pickle and JSON form, versions 1 and 2);
Ascend/pytorch torch_npu/csrc/distributed (the same fields, default name ``/tmp/hccl_trace_rank_N``).
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from doctor.diagnose.events import RecordedCollective, RecordedGroup, Recording
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled

MAX_BYTES = 32 << 20
"""Bytes of one pickle."""
MAX_READS = 10_000_000
"""Operations and their arguments."""
MAX_VALUES = 1_200_000
"""Dictionaries, lists and tuples of one pickle, and values that it remembers."""
_FREE = frozenset(
    (pickle.PROTO + pickle.MARK + pickle.STOP + pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE)
    + (pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.LONG1 + pickle.BINFLOAT)
    + (pickle.APPEND + pickle.APPENDS + pickle.BINGET + pickle.LONG_BINGET)
)
_COUNTED = frozenset(
    (pickle.EMPTY_DICT + pickle.EMPTY_LIST + pickle.EMPTY_TUPLE + pickle.TUPLE)
    + (pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3 + pickle.BINPUT + pickle.LONG_BINPUT + pickle.MEMOIZE)
)


class PickleRefusedError(Exception):
    """One line: what the pickle holds that is not a plain value, or where it ends too early."""


def is_pickle(head: bytes) -> bool:
    """Whether a file begins as a pickle of protocol 2 to 5."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def read_plain_pickle(data: bytes) -> Any:
    r"""The value of a pickle.

    >>> read_plain_pickle(b"\x80\x02]K\x07a.")
    [7]

    Raises: PickleRefusedError for anything but plain values, a damaged pickle, or one beyond the limits.
    """
    if len(data) > MAX_BYTES:
        raise PickleRefusedError(filled("is larger than {0} MiB", MAX_BYTES >> 20))
    try:
        return _PlainUnpickler(_BoundedFile(data)).load()
    except KeyError as error:
        operation = f"{error.args[0]:#04x}"
        raise PickleRefusedError(filled("holds something other than plain values (operation {0})", operation)) from None
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError, pickle.UnpicklingError) as error:
        raise PickleRefusedError(filled("is damaged ({0})", type(error).__name__)) from None


class _BoundedFile(io.BytesIO):
    """Gives out a pickle up to `MAX_READS`."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > MAX_READS:
            raise PickleRefusedError(filled("has more than {0} operations", MAX_READS))
        part = super().read(size)
        if len(part) != size:
            raise PickleRefusedError("ends too early")
        return part


class _PlainUnpickler(pickle._Unpickler):
    """The standard library's own, in Python: that in C makes room for what a pickle claims to remember."""

    stack: list[Any]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]
    dispatch: ClassVar[dict[int, Any]]
    values = 0

    def count(self, load: Callable[[Any], None]) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise PickleRefusedError(filled("has more than {0} containers", MAX_VALUES))
        load(self)

    def text(self, width: int) -> None:
        """A text behind its length in so many bytes."""
        self.append(self.read(int.from_bytes(self.read(width), "little")).decode("utf-8", "replace"))

    def fill(self, items: list[Any]) -> None:
        """Keys and values into the dictionary on top of the stack."""
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise PickleRefusedError("is damaged (no dictionary)")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float):
                raise PickleRefusedError("has a key that is neither a text nor a number")
            target[key] = value


def _fill_with_one(machine: _PlainUnpickler) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.fill([key, value])


def _counted(code: int) -> Callable[[_PlainUnpickler], None]:
    load = pickle._Unpickler.dispatch[code]
    return lambda machine: machine.count(load)


_PlainUnpickler.dispatch = {
    **{code: pickle._Unpickler.dispatch[code] for code in _FREE},
    **{code: _counted(code) for code in _COUNTED},
    pickle.FRAME[0]: lambda machine: machine.read(8),  # its length says nothing of a value
    pickle.SHORT_BINUNICODE[0]: lambda machine: machine.text(1),
    pickle.BINUNICODE[0]: lambda machine: machine.text(4),
    pickle.BINUNICODE8[0]: lambda machine: machine.text(8),
    pickle.SETITEM[0]: _fill_with_one,
    pickle.SETITEMS[0]: lambda machine: machine.fill(machine.pop_mark()),
}


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
