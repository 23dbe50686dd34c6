"""Reads pickles that hold plain values only, as torch's flight recorder writes them. Nothing in them is executed.

Only the operations that make dictionaries, lists, tuples, texts, numbers, booleans and None are known; every other one,
above all those that name a class or call it, is refused. Keys are texts and numbers, so that no deep key is hashed.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

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
