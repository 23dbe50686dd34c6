"""Random numbers that depend on the seed, the step and the block alone, not on the rank or on earlier draws."""

from __future__ import annotations

import random
import zlib
from typing import Any

from doctor.smoke.programs.worker.libraries import numpy, torch

SEQUENCE_LENGTH, TOPICS, VOCABULARY, MASKED_PER_ROW, BLOCK_ROWS = 8, 7, 64, 2, 4
"""A row is a sequence of tokens on one topic; rows come in blocks of BLOCK_ROWS."""
HIDDEN, HEADS, MLP_HIDDEN, DROPOUT = 32, 8, 64, 0.1
"""Of the model."""


class CounterRng:
    """The random generators, each seeded anew for every block."""

    KINDS = ("python", "numpy", "torch", "device", "dropout")

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed, self.device = seed, device
        self.python = random.Random()
        self.numpy = numpy.random.RandomState() if numpy else None
        self.torch = torch.Generator()
        self.on_device = torch.Generator(device=device)
        self.dropout = torch.Generator(device=device)

    def seed_of(self, kind: str, step: int, block: int) -> int:
        """The seed of one generator, one of KINDS, for one block."""
        return zlib.crc32(b"%s %d %d %d" % (kind.encode(), self.seed, step, block))

    def mask_scores(self, step: int, block: int) -> dict[str, list[float]]:
        """One number for every token of the block, from each generator that masks are drawn with."""
        count = BLOCK_ROWS * SEQUENCE_LENGTH
        seeds = {kind: self.seed_of(kind, step, block) for kind in self.KINDS}
        self.python.seed(seeds["python"])
        scores: dict[str, Any] = {"python": [self.python.random() for _ in range(count)]}
        if self.numpy:
            self.numpy.seed(seeds["numpy"])
            scores["numpy"] = self.numpy.random_sample(count).tolist()
        self.torch.manual_seed(seeds["torch"])
        scores["torch"] = torch.rand(count, generator=self.torch, dtype=torch.float32).tolist()
        self.on_device.manual_seed(seeds["device"])
        scores["device"] = torch.rand(count, generator=self.on_device, device=self.device, dtype=torch.float32).tolist()
        return scores

    def dropout_mask(self, step: int, block: int, layer_count: int) -> torch.Tensor:
        """True for each number of the block that dropout keeps, by layer, row and position."""
        self.dropout.manual_seed(self.seed_of("dropout", step, block))
        shape = (layer_count, BLOCK_ROWS, SEQUENCE_LENGTH, HIDDEN)
        return torch.rand(shape, generator=self.dropout, device=self.device, dtype=torch.float32) >= DROPOUT
