"""What the program's data loaders read: the indices of each batch. Python 3.8, torch 2.1.

Seen in the training process, where a loader hands indices to its workers; so data sets of the map style alone. A part
of the hook.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable

from .data_position import DataPosition, LoaderPosition
from .digest import encode_indices, generators, tensor_digest
from .module_values import tensors_in

MAX_BITMAP = 1 << 23
"""The largest data set whose epochs are recorded as a whole, in samples."""
MAX_WORKERS = 16
"""Of a loader: the first ones, whose generators are looked at."""
WORKER_EPOCHS, WHOLE_EPOCHS = 2, 4
CONTENT_BATCHES, MAX_ROWS = 12, 64
"""Of a training's loader, whose rows are digested."""
LEAST_VARIED = 8
"""Different values of a row."""


class BatchIndices:
    """Records the indices of the first batches of each training loader, and of whole epochs.

    ``write`` writes a record; ``note_line``, from which line of the program the present call comes.
    """

    def __init__(
        self,
        torch: Any,
        write: Callable[..., None],
        batches: int,
        positions: DataPosition,
        note_line: Callable[[str], None],
    ) -> None:
        self.torch, self.write, self.note_line = torch, write, note_line
        self.batches, self.positions = batches, positions
        self.bits: dict[int, bytearray] = {}
        """By loader: the samples of its present epoch."""
        positions.listener = self

    def watch_workers(self) -> None:
        """A worker makes its fetcher after it was seeded, and after the program's own `worker_init_fn`.

        Workers that are forked have this method as it is here; spawned ones are not seen.
        """
        kinds = importlib.import_module("torch.utils.data.dataloader")._DatasetKind
        original = kinds.create_fetcher

        def create_fetcher(kind: Any, dataset: Any, *arguments: Any, **named: Any) -> Any:
            self.positions.guard(self._worker, dataset)
            return original(kind, dataset, *arguments, **named)

        kinds.create_fetcher = staticmethod(create_fetcher)

    def _worker(self, dataset: Any) -> None:
        about, loaders = self.torch.utils.data.get_worker_info(), self.positions.loaders
        position = loaders.get(id(dataset))
        loader, epoch = (position.number, position.epoch + 1) if position else (len(loaders), 0)
        if about is not None and epoch < WORKER_EPOCHS and about.id < MAX_WORKERS and self.positions.active():
            self.write("worker", l=loader, e=epoch, w=about.id, g=generators(self.torch))

    def begin(self, position: LoaderPosition, iterator: Any) -> None:
        """A loader begins an epoch."""
        size = position.size
        self.bits.pop(position.number, None)
        if 0 <= size <= MAX_BITMAP:
            self.bits[position.number] = bytearray(size // 8 + 1)
        index_sampler = getattr(iterator, "_index_sampler", None)
        inner = getattr(index_sampler, "sampler", index_sampler)
        self.write(
            "loader",
            l=position.number,
            e=position.epoch,
            size=size,
            seed=int(getattr(iterator, "_base_seed", 0) or 0),
            workers=position.workers,
            sampler=type(inner).__name__[:60],
            replacement=bool(getattr(inner, "replacement", False)),
            shares=int(getattr(inner, "num_replicas", 0) or 0),
            share=int(getattr(inner, "rank", -1)) if hasattr(inner, "num_replicas") else -1,
            shuffle=position.shuffled_by,
            batch=position.batch_size,
        )
        self.note_line("loader")

    def batch(self, position: LoaderPosition, values: tuple[int, ...]) -> None:
        """It hands out a batch."""
        if position.requested <= self.batches:
            fields = encode_indices(list(values))
            self.write("batch", l=position.number, e=position.epoch, i=position.requested - 1, **fields)
        bits = self.bits.get(position.number)
        for value in values if bits else ():
            if 0 <= value < position.size:
                bits[value >> 3] |= 1 << (value & 7)  # type: ignore[index]

    def content(self, position: LoaderPosition, batch: Any) -> None:
        """The program gets it: digests of its rows, where each is varied enough to differ from a label or a mask."""
        if position.epoch or position.yielded > CONTENT_BATCHES:
            return
        tensors = (tensor for _, tensor in tensors_in(batch) if tensor.dim() > 1 and tensor.device.type == "cpu")
        for tensor in tensors:
            rows = list(tensor[:MAX_ROWS])
            if rows and all(row.numel() >= LEAST_VARIED and row.unique().numel() >= LEAST_VARIED for row in rows):
                digests = [tensor_digest(row) for row in rows]
                self.write("rows", l=position.number, i=position.yielded - 1, d=digests)
                return

    def end(self, position: LoaderPosition) -> None:
        """The program has got all of an epoch."""
        bits = self.bits.pop(position.number, None)
        if bits is None or position.epoch >= WHOLE_EPOCHS:
            return
        fields = encode_indices([index for index in range(position.size) if bits[index >> 3] & 1 << (index & 7)])
        fields["count"] = position.kept
        self.write("epoch", l=position.number, e=position.epoch, size=position.size, **fields)
