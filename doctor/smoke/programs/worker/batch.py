"""The training data: made-up sequences, masked. Every rank can generate every block."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from doctor.smoke.programs.process_groups import Plan
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch
from doctor.smoke.programs.worker.rng import (
    BLOCK_ROWS,
    DROPOUT,
    MASKED_PER_ROW,
    SEQUENCE_LENGTH,
    TOPICS,
    VOCABULARY,
    CounterRng,
)
from doctor.smoke.programs.worker.values import digest, tensor_bytes


def model_layer_count(plan: Plan) -> int:
    """Layers of the model: two, or as many as the longest pipeline has stages."""
    return max([2, *(int(layout.get("pp", 1)) for layout in plan["layouts"])])


def block_count(world_size: int, minimum: int = 8) -> int:
    """Blocks of one step: at least the minimum, and the same number for every rank."""
    return world_size * -(-minimum // world_size)


def block_samples(seed: int, step: int, count: int) -> list[int]:
    """The number of each block's sample: seven topics to the power of four rows, none twice in a step."""
    variety = TOPICS**BLOCK_ROWS
    numbers = random.Random(f"{seed} {step}").sample(range(max(count, variety)), count)
    return [number % variety for number in numbers]


def sample_rows(sample: int) -> list[list[int]]:
    """The token ids of a sample's rows. At each position a token stands for a topic, the same in the whole row.

    So who sees the other tokens of a row knows what a masked one is.
    """
    topics = [sample // TOPICS**row % TOPICS for row in range(BLOCK_ROWS)]
    return [[position * TOPICS + topic + 1 for position in range(SEQUENCE_LENGTH)] for topic in topics]


def masked_positions(scores: dict[str, list[float]]) -> list[list[int]]:
    """The positions of each row with the highest sums of scores: the mask depends on every generator."""
    total = [sum(of_token) for of_token in zip(*scores.values())]
    rows = [total[start : start + SEQUENCE_LENGTH] for start in range(0, len(total), SEQUENCE_LENGTH)]
    return [sorted(sorted(range(SEQUENCE_LENGTH), key=row.__getitem__)[-MASKED_PER_ROW:]) for row in rows]


class Batch:
    """The rows of some blocks, masked, and their dropout.

    The device gets one-hot rows and products only: the gradient of a lookup would be a sum in any order.

    ``inputs``: one-hot tokens. ``selectors``: one-hot rows that select the masked positions. ``targets``: one-hot
    tokens at those positions. ``dropout_scale``: what the layers' outputs are multiplied with, or None. ``ids``,
    ``masks``: a checksum for each block. ``rng_digests``: a digest of what each generator gave.
    """

    def __init__(
        self, ctx: RankContext, rng: CounterRng, step: int, blocks: Iterable[int], dropout: bool, count: int = 0
    ) -> None:
        samples = block_samples(rng.seed, step, count or block_count(ctx.world_size))
        rows: list[list[int]] = []
        masked: list[list[int]] = []
        dropout_masks = []
        drawn = dict.fromkeys(rng.KINDS, b"")
        self.blocks, self.ids, self.masks = list(blocks), [], []
        for block in self.blocks:
            block_rows, scores = sample_rows(samples[block]), rng.mask_scores(step, block)
            block_mask = masked_positions(scores)
            for kind, numbers in scores.items():
                drawn[kind] += struct.pack(f"{len(numbers)}d", *numbers)
            self.ids.append(zlib.crc32(bytes(flatten(block_rows))))
            self.masks.append(zlib.crc32(bytes(flatten(block_mask))))
            rows, masked = rows + block_rows, masked + block_mask
            if dropout:
                dropout_masks.append(rng.dropout_mask(step, block, model_layer_count(ctx.plan)))
        self.dropout_scale: Any = None
        if dropout:
            kept = torch.cat(dropout_masks, 1)
            drawn["dropout"] = tensor_bytes(kept)
            self.kept, self.dropout_scale = kept, kept / (1 - DROPOUT)
        self.rng_digests = {kind: digest(numbers) for kind, numbers in drawn.items() if numbers}
        tokens, positions = torch.tensor(rows), torch.tensor(masked)
        self.tokens, self.positions = tokens, positions
        self.inputs = torch.eye(VOCABULARY)[tokens.scatter(1, positions, 0)].to(ctx.device)  # 0 is the masked token
        self.selectors = torch.eye(SEQUENCE_LENGTH)[positions].to(ctx.device)
        self.targets = torch.eye(VOCABULARY)[tokens.gather(1, positions)].to(ctx.device)

    def __len__(self) -> int:
        return len(self.inputs)

    def micro_batches(self, count: int) -> list[slice]:
        """Slices of the rows, at most one a row."""
        count = min(count, len(self))
        edges = [len(self) * number // count for number in range(count + 1)]
        return [slice(start, stop) for start, stop in zip(edges, edges[1:])]


def flatten(rows: Sequence[Sequence[int]]) -> list[int]:
    """The numbers of all rows, row by row."""
    return [number for row in rows for number in row]
