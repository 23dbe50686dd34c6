"""Loss curves of healthy and of faulty trainings, drawn at random: what the false-alarm rate is measured on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from doctor.watch.loss.loss_lines import LossLine, significant_digits


class Curve(NamedTuple):
    """Losses by step, as they are printed."""

    shape: str
    lines: tuple[LossLine, ...]


def _printed(value: float, form: str, step: int, *, skipped: bool = False) -> LossLine:
    text = format(value, form)
    return LossLine(float(text), significant_digits(text), step=step, skipped=skipped)


def healthy_curve(seed: int) -> Curve:
    """A training from its start or from a checkpoint: warm-up, decay, noise with heavy tails that is correlated, single
    outliers, curriculum steps, restarts from checkpoints, and steps that a loss scaler leaves out.
    """
    rng = random.Random(seed)
    shape = rng.choice(
        ("pretraining", "fine-tuning", "classification", "resumed", "small-batch", "cyclic", "curriculum")
    )
    count = rng.randint(80, 1600)
    stride = rng.choice((1, 1, 5, 10, 100))
    level, floor, half = _levels(rng, shape, count)
    warmup = rng.randint(1, max(2, count // 20))
    noise = rng.uniform(0.002, 0.04) if shape != "small-batch" else rng.uniform(0.1, 0.4)
    tail, memory = rng.choice((1.0, 1.0, 3.0)), rng.choice((0.0, 0.3, 0.7))
    first = rng.randint(50, 5000) * stride * 20 if shape == "resumed" else rng.choice((0, 1, stride))
    jumps = _jumps(rng, shape, count)
    form = rng.choice((".3f", ".4f", ".6E", ".4g", ".10f"))
    back = rng.randint(count // 3, count - 1) if rng.random() < 0.15 else -1
    scaler = rng.random() < 0.2
    lines, drift, shift = [], 0.0, 0.0
    step = first
    for index in range(count):
        if index == back:
            step -= rng.randint(1, max(1, min(20, index // 4))) * stride
        step += stride
        progress = max(0.0, index - warmup / 2) / half
        value = floor + (level - floor) / (1 + progress) ** 0.7 + shift
        shift += jumps.get(index, 0.0) * value
        if shape == "cyclic":
            value *= 1 + 0.1 * (1 - (index % max(50, count // 4)) / max(50, count // 4)) * min(1, index / 50)
        shift *= 0.995
        draw = rng.gauss(0, 1) if tail == 1.0 or rng.random() > 0.02 else rng.gauss(0, tail)
        drift = memory * drift + math.sqrt(1 - memory**2) * draw
        value *= math.exp(noise * drift)
        if rng.random() < 0.001:
            value *= rng.uniform(1.3, 3)  # one bad batch
        skipped = scaler and index < 16 and rng.random() < 0.6
        if skipped and rng.random() < 0.3:
            value = math.inf
        lines.append(_printed(value, form, step, skipped=skipped))
    return Curve(shape, tuple(lines))


def _levels(rng: random.Random, shape: str, count: int) -> tuple[float, float, float]:
    """The loss at the start, that at the end of all time, and the steps in which half of the way is made."""
    half = rng.uniform(0.01, 0.15) * count
    if shape in ("pretraining", "curriculum", "cyclic"):
        return rng.uniform(9, 12), rng.uniform(1.5, 3.5), half
    if shape == "classification":
        return rng.uniform(2.2, 7), rng.uniform(0.05, 0.8), half
    if shape == "resumed":
        level = rng.uniform(1.5, 4)
        return level, level * rng.uniform(0.85, 1), half
    level = rng.uniform(0.8, 3)
    return level, level * rng.uniform(0.4, 0.85), half


def _jumps(rng: random.Random, shape: str, count: int) -> dict[int, float]:
    """Where the data become harder, and by how much."""
    if shape != "curriculum":
        return {}
    return {rng.randrange(count // 4, count): rng.uniform(0.03, 0.2) for _ in range(rng.randint(1, 3))}


def faulty_curve(kind: str, seed: int) -> Curve:
    """A training that goes wrong in the way that the verdict ``kind`` tells of."""
    rng = random.Random(seed)
    count, noise = rng.randint(600, 1500), rng.uniform(0.003, 0.05)
    at = rng.randint(count // 3, count // 2)
    form = rng.choice((".4f", ".6E", ".10f"))
    level, floor, half = rng.uniform(9, 12), rng.uniform(1.5, 3.5), rng.uniform(0.02, 0.1) * count
    lines: list[LossLine] = []
    for index in range(count):
        value = floor + (level - floor) / (1 + index / half) ** 0.7
        if kind == "stalled":
            value = level
        elif kind == "diverged" and index >= at:
            value += (level - floor) * rng.uniform(0.9, 1.1) * min(1.0, (index - at) / 50)
        elif kind == "spiked" and at <= index < at + 40:
            value *= 1 + rng.uniform(1, 2) * (1 - (index - at) / 40)
        value *= math.exp(noise * rng.gauss(0, 1))
        if kind == "not-finite" and index >= at:
            value = math.nan
        elif kind == "constant" and index >= at:
            value = lines[-1].value
        lines.append(_printed(value, form if kind != "constant" else ".6E", index + 1))
    return Curve(kind, tuple(lines))


def fed(curve: Curve) -> Iterator[tuple[LossLine, int]]:
    """What `LossSeries.add` takes."""
    return ((line, index + 1) for index, line in enumerate(curve.lines))
