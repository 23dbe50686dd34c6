"""What the program's data loaders read: the indices of each batch. Python 3.8, torch 2.1.

Seen in the training process, where a loader hands indices to its workers; so data sets of the map style alone. A part
of the hook.
"""

from __future__ import annotations

import importlib
import weakref
from typing import Any, Callable

from .digest import encode_indices, generators

MAX_BITMAP = 1 << 23
"""The largest data set whose epochs are recorded as a whole, in samples."""
MAX_LOADERS = 64
MAX_WORKERS = 16
"""Of a loader: the first ones, whose generators are looked at."""
WORKER_EPOCHS = 2


class BatchIndices:
    """Records the indices of the first batches of each training loader, and of whole epochs.

    ``active`` says whether the program trains now: what it reads for an evaluation is no matter of shards.
    ``note_line`` writes from which line of the program the present call comes.
    """

    def __init__(
        self,
        torch: Any,
        write: Callable[..., None],
        batches: int,
        active: Callable[[], bool],
        note_line: Callable[[str], None],
    ) -> None:
        self.torch, self.write, self.batches, self.active, self.note_line = torch, write, batches, active, note_line
        self.epochs: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()
        self.loaders: dict[int, list[int]] = {}

    def install(self) -> None:
        """Wraps the one method through which every iterator over a loader comes by its next indices."""
        base = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
        original = base._next_index

        def _next_index(iterator: Any) -> Any:
            try:
                indices = original(iterator)
            except StopIteration:
                self._guard(self._end, iterator)
                raise
            self._guard(self._batch, iterator, indices)
            return indices

        base._next_index = _next_index
        self._watch_workers()

    def _watch_workers(self) -> None:
        """A worker makes its fetcher after it was seeded, and after the program's own `worker_init_fn`.

        Workers that are forked have this method as it is here; spawned ones are not seen.
        """
        kinds = importlib.import_module("torch.utils.data.dataloader")._DatasetKind
        original = kinds.create_fetcher

        def create_fetcher(kind: Any, dataset: Any, *arguments: Any, **named: Any) -> Any:
            self._guard(self._worker, dataset)
            return original(kind, dataset, *arguments, **named)

        kinds.create_fetcher = staticmethod(create_fetcher)

    def _worker(self, dataset: Any) -> None:
        about = self.torch.utils.data.get_worker_info()
        loader, epoch = self.loaders.get(id(dataset), (len(self.loaders), 0))
        if about is not None and epoch < WORKER_EPOCHS and about.id < MAX_WORKERS and self.active():
            self.write("worker", l=loader, e=epoch, w=about.id, g=generators(self.torch))

    def _guard(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self.write("failed", n="batch_indices", text=f"{type(error).__name__}: {error}"[:200])

    def _begin(self, iterator: Any) -> dict[str, Any]:
        dataset = iterator._dataset
        size = len(dataset) if hasattr(dataset, "__len__") else -1
        numbers = self.loaders.setdefault(id(dataset), [len(self.loaders), 0])
        epoch = {
            "loader": numbers[0],
            "epoch": numbers[1],
            "batches": 0,
            "count": 0,
            "size": size,
            "bits": bytearray(size // 8 + 1) if 0 <= size <= MAX_BITMAP else None,
        }
        numbers[1] += 1
        index_sampler = getattr(iterator, "_index_sampler", None)
        inner = getattr(index_sampler, "sampler", index_sampler)
        self.write(
            "loader",
            l=epoch["loader"],
            e=epoch["epoch"],
            size=size,
            seed=int(getattr(iterator, "_base_seed", 0) or 0),
            workers=int(getattr(iterator, "_num_workers", 0)),
            sampler=type(inner).__name__[:60],
            replacement=bool(getattr(inner, "replacement", False)),
            shares=int(getattr(inner, "num_replicas", 0) or 0),
            share=int(getattr(inner, "rank", -1)) if hasattr(inner, "num_replicas") else -1,
            shuffle=int(getattr(inner, "epoch", -1)) if getattr(inner, "shuffle", False) else -1,
            batch=int(getattr(index_sampler, "batch_size", 0) or 0),
        )
        self.note_line("loader")
        self.epochs[iterator] = epoch
        return epoch

    def _batch(self, iterator: Any, indices: Any) -> None:
        if len(self.loaders) > MAX_LOADERS or not self.active():
            return
        epoch = self.epochs.get(iterator) or self._begin(iterator)
        values = [indices] if isinstance(indices, int) else list(indices)
        if not all(isinstance(value, int) for value in values):
            return
        if epoch["batches"] < self.batches:
            self.write("batch", l=epoch["loader"], e=epoch["epoch"], i=epoch["batches"], **encode_indices(values))
        epoch["batches"] += 1
        epoch["count"] += len(values)
        bits = epoch["bits"]
        if bits is not None:
            for value in values:
                if 0 <= value < epoch["size"]:
                    bits[value >> 3] |= 1 << (value & 7)

    def _end(self, iterator: Any) -> None:
        epoch = self.epochs.pop(iterator, None)
        if epoch is None or epoch["bits"] is None or epoch["epoch"] >= 4:
            return
        bits = epoch["bits"]
        values = [index for index in range(epoch["size"]) if bits[index >> 3] & 1 << (index & 7)]
        fields = encode_indices(values)
        fields["count"] = epoch["count"]
        self.write("epoch", l=epoch["loader"], e=epoch["epoch"], size=epoch["size"], **fields)
