"""Reads pickles that hold plain values only, as torch's flight recorder writes them. Nothing in them is executed.

Only the operations that make dictionaries, lists, tuples, texts, numbers, booleans and None are known; every other one,
above all those that name a class or call it, is refused. Keys are texts and numbers, so that no deep key is hashed.
"""

from __future__ import annotations

import struct
from typing import Any

from doctor.engine.texts import filled

MAX_BYTES = 32 << 20
"""Bytes of one pickle."""
MAX_OPERATIONS = 5_000_000
MAX_CONTAINERS = 600_000
"""Dictionaries, lists and tuples of one pickle, and values that it remembers."""
_CONSTANTS: dict[int, Any] = {0x4E: None, 0x88: True, 0x89: False}
_NUMBERS = {0x4B: (1, "<B"), 0x4D: (2, "<H"), 0x4A: (4, "<i"), 0x47: (8, ">d")}
_TEXTS = {0x58: (4, "<I"), 0x8C: (1, "<B"), 0x8D: (8, "<Q")}
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_READS = {0x68: (1, "<B"), 0x6A: (4, "<I")}
_WRITES = {0x71: (1, "<B"), 0x72: (4, "<I")}
_FILLS = frozenset({0x75, 0x65, 0x73, 0x61})
_SKIPPED = {0x80: 1, 0x95: 8}
"""Bytes after operations that say nothing of a value: the protocol's number, and the length of a frame."""
_MAKES = frozenset({0x7D, 0x5D, 0x29, 0x74, *_TUPLES})
_MARK = object()


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
        return _Machine(data).run()
    except (IndexError, KeyError, TypeError, ValueError, struct.error, OverflowError) as error:
        raise PickleRefusedError(filled("is damaged ({0})", type(error).__name__)) from None


class _Machine:
    """The stack and the memory of one pickle."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.containers = 0

    def run(self) -> Any:
        data, stack, memo = self.data, self.stack, self.memo
        for _ in range(MAX_OPERATIONS):
            code = data[self.at]
            self.at += 1
            if code == 0x68:  # what most operations of a dump are: a text that stood before
                stack.append(memo[data[self.at]])
                self.at += 1
            elif code in _TEXTS:
                stack.append(self._bytes(self._number(*_TEXTS[code])).decode("utf-8", "replace"))
            elif code in _NUMBERS:
                stack.append(self._number(*_NUMBERS[code]))
            elif code in _WRITES:
                self._remember(self._number(*_WRITES[code]))
            elif code in _READS:
                stack.append(memo[self._number(*_READS[code])])
            elif code == 0x28:
                stack.append(_MARK)
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == 0x2E:
                return stack.pop()
            else:
                self._build(code)
        raise PickleRefusedError(filled("has more than {0} operations", MAX_OPERATIONS))

    def _build(self, code: int) -> None:
        """The operations that put containers together, and those that have nothing to do with a value."""
        self.containers += code in _MAKES
        if self.containers > MAX_CONTAINERS:
            raise PickleRefusedError(filled("has more than {0} containers", MAX_CONTAINERS))
        if code in _MAKES:
            self.stack.append(self._container(code))
        elif code in _FILLS:
            self._put(code)
        elif code == 0x8A:
            self.stack.append(int.from_bytes(self._bytes(self._number(1, "<B")), "little", signed=True))
        elif code == 0x94:
            self._remember(len(self.memo))
        elif code in _SKIPPED:
            self.at += _SKIPPED[code]
        else:
            raise PickleRefusedError(filled("holds something other than plain values (operation {0})", f"{code:#04x}"))

    def _container(self, code: int) -> Any:
        """A new container; a tuple takes its items from the stack."""
        if code == 0x74:
            return tuple(self._marked())
        if code in _TUPLES:
            at = len(self.stack) - _TUPLES[code]
            if at < 0:
                raise PickleRefusedError("is damaged (no items)")
            items = tuple(self.stack[at:])
            del self.stack[at:]
            return items
        return {0x7D: dict, 0x5D: list, 0x29: tuple}[code]()

    def _put(self, code: int) -> None:
        """Items of the stack into the list or dictionary below them."""
        if code in (0x75, 0x65):
            items = self._marked()
        else:
            count = 2 if code == 0x73 else 1
            items = self.stack[len(self.stack) - count :]
            del self.stack[len(self.stack) - count :]
        if code in (0x75, 0x73):
            self._fill(items)
        else:
            self._list().extend(items)

    def _remember(self, number: int) -> None:
        if len(self.memo) >= MAX_CONTAINERS:
            raise PickleRefusedError(filled("remembers more than {0} values", MAX_CONTAINERS))
        self.memo[number] = self.stack[-1]

    def _bytes(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) != count:
            raise PickleRefusedError("ends too early")
        self.at += count
        return part

    def _number(self, width: int, form: str) -> Any:
        return struct.unpack(form, self._bytes(width))[0]

    def _marked(self) -> list[Any]:
        """The values above the last mark, which is taken off too."""
        stack = self.stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise PickleRefusedError("is damaged (no mark)")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def _list(self) -> list[Any]:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise PickleRefusedError("is damaged (no list)")
        return target

    def _fill(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict):
            raise PickleRefusedError("is damaged (no dictionary)")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, str | int | float):
                raise PickleRefusedError("has a key that is neither a text nor a number")
            target[key] = value
