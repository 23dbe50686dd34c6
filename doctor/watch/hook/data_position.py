"""How far the program's data loaders are: what they have given of their present epoch. Python 3.8, torch 2.1.

A part of the hook.
"""

from __future__ import annotations

import importlib
import weakref
import zlib
from typing import Any, Callable

from .digest import encode_indices

MAX_LOADERS = 64
MAX_BATCHES = 2048
"""Of an epoch, whose digests are kept one by one."""
MAX_KEPT = 1 << 20
"""Indices of an epoch that are kept."""
MAX_EPOCHS = 64


class LoaderPosition:
    """Of one loader: its epochs, and of the present one its batches in their order."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.epoch, self.over = -1, False
        self.yielded = self.requested = 0
        self.first: list[int] = []
        """Of each epoch, the digest of its first batch."""
        self.batches: list[tuple[int, ...]] = []
        self.kept = 0
        self.shuffled_by = -1
        """The epoch that the sampler was given."""
        self.batch_size = self.total = self.workers = 0
        """``total``: batches of an epoch, where the sampler tells; else 0."""

    def begin(self, iterator: Any) -> None:
        self.epoch += 1
        self.yielded, self.requested, self.kept, self.over, self.batches = 0, 0, 0, False, []
        index_sampler = getattr(iterator, "_index_sampler", None)
        inner = getattr(index_sampler, "sampler", index_sampler)
        self.shuffled_by = int(getattr(inner, "epoch", -1)) if getattr(inner, "shuffle", False) else -1
        self.batch_size = int(getattr(index_sampler, "batch_size", 0) or 0)
        self.workers = int(getattr(iterator, "_num_workers", 0))
        self.total = size_of(index_sampler, 0)

    def hand_out(self, indices: tuple[int, ...]) -> None:
        """The loader asks for a batch, which the program gets later."""
        self.requested += 1
        if not self.batches and len(self.first) <= min(self.epoch, MAX_EPOCHS):
            self.first.append(batch_digest(indices))
        self.kept += len(indices)
        if self.kept <= MAX_KEPT:
            self.batches.append(indices)

    def state(self, count: int = -1) -> dict[str, Any]:
        """As it is written. ``count``: as it was when the program had got so many batches of the epoch."""
        count = self.yielded if count < 0 else count
        batches = self.batches[:count]
        complete = count <= len(self.batches)
        used = complete and batches
        return {
            "l": self.number,
            "size": self.size,
            "batch": self.batch_size,
            "workers": self.workers,
            "e": self.epoch,
            "se": self.shuffled_by,
            "over": (self.over and count == self.yielded) or 0 < self.total <= count,
            "y": count,
            "first": self.first,
            "crc": [batch_digest(indices) for indices in batches[:MAX_BATCHES]],
            "ahead": [batch_digest(indices) for indices in self.batches[count : count + 32]],
            "used": encode_indices([index for indices in batches for index in indices]) if used else None,
            "last": list(batches[-1])[:2048] if used else None,
        }


class DataPosition:
    """Of all loaders that feed the training."""

    def __init__(self, active: Callable[[], bool], guard: Callable[..., None]) -> None:
        """``active``: whether the program trains now."""
        self.active, self.guard = active, guard
        self.loaders: dict[Any, LoaderPosition] = {}
        self.iterators: weakref.WeakKeyDictionary[Any, LoaderPosition] = weakref.WeakKeyDictionary()
        self.latest: LoaderPosition | None = None
        self.listener: Any = None
        """Learns of epochs and batches, too: ``begin``, ``batch``, ``content``, ``end``."""

    def install(self) -> None:
        """Wraps what every iterator over a loader goes through."""
        base = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
        next_index, take_next, reset = base._next_index, base.__next__, base._reset

        def _next_index(iterator: Any) -> Any:
            indices = next_index(iterator)
            self.guard(self._hand_out, iterator, indices)
            return indices

        def next_batch(iterator: Any) -> Any:
            try:
                batch = take_next(iterator)
            except StopIteration:
                self.guard(self._end, iterator)
                raise
            self.guard(self._give, iterator, batch)
            return batch

        def _reset(iterator: Any, *arguments: Any, **named: Any) -> Any:
            self.guard(self.iterators.pop, iterator, None)  # workers that live on begin a new epoch
            return reset(iterator, *arguments, **named)

        base._next_index, base.__next__, base._reset = _next_index, next_batch, _reset

    def _hand_out(self, iterator: Any, indices: Any) -> None:
        position = self.iterators.get(iterator)
        if position is None:
            if not self.active():
                return
            position = self._begin(iterator)
        values = tuple(indices) if isinstance(indices, (list, tuple, range)) else (indices,)  # others may end by it
        if position is not None and all(isinstance(value, int) for value in values):
            position.hand_out(values)
            if self.listener:
                self.listener.batch(position, values)

    def _begin(self, iterator: Any) -> LoaderPosition | None:
        dataset = iterator._dataset
        key = id(dataset)
        if key not in self.loaders:
            if len(self.loaders) >= MAX_LOADERS:
                return None
            self.loaders[key] = LoaderPosition(len(self.loaders), size_of(dataset, -1))
        position = self.iterators[iterator] = self.loaders[key]
        position.begin(iterator)
        if self.listener:
            self.listener.begin(position, iterator)
        return position

    def _give(self, iterator: Any, batch: Any) -> None:
        position = self.iterators.get(iterator)
        if position is not None:
            position.yielded += 1
            self.latest = position
            if self.listener:
                self.listener.content(position, batch)

    def _end(self, iterator: Any) -> None:
        position = self.iterators.get(iterator)
        if position is not None:
            position.over = True
            if self.listener:
                self.listener.end(position)

    def counts(self) -> dict[int, tuple[int, int]]:
        """By loader: its epoch, and the batches that it has given of it."""
        return {position.number: (position.epoch, position.yielded) for position in self.loaders.values()}

    def states(self, counts: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
        """Of the loaders, as they were at these counts; without those that are in another epoch since."""
        return [
            position.state(counts[position.number][1])
            for position in self.loaders.values()
            if counts.get(position.number, (-1, 0))[0] == position.epoch >= 0
        ]


def size_of(value: Any, unknown: int) -> int:
    """Its length; ``unknown`` where it has none: a sampler of batches has a ``__len__`` that asks one without."""
    try:
        return len(value)
    except Exception:
        return unknown


def batch_digest(indices: tuple[int, ...]) -> int:
    """Of a batch's indices in their order.

    >>> batch_digest((3, 1)) == batch_digest((1, 3))
    False
    """
    return zlib.crc32(repr(indices).encode())
