"""Logs of trainings that go well, with what healthy runs print beside: retries, warnings, quoted and handled errors."""

from __future__ import annotations

import random

from tests.diagnose import log_files

WAYS = 6
HEADS = ("", "", "(WorkerDict pid=812) ", "[1,{rank}]<stdout>:", "worker-{rank}: ", "2026-11-20T10:00:00.123Z ")
ENDS = (
    "{'train_runtime': 23328.5, 'train_samples_per_second': 0.391, 'train_loss': 0.62, 'epoch': 1.0}",
    "`Trainer.fit` stopped: `max_epochs=1` reached.",
    "Training Over!",
    "训练完成",
    "",
)
STEPS = 40
LAST_NOISE = 35
"""Of the steps: behind it come enough to show that the program goes on."""
NOISE: list[str] = log_files.read("noise.yaml")


def step_line(way: int, step: int, rank: int) -> str:
    """A step as one of several programs prints it."""
    loss = 3 - step * 0.01
    lines = (
        f"step {step} loss {loss:.4f} lr 1e-4",
        f"{{'loss': {loss:.4f}, 'grad_norm': 1.2, 'learning_rate': 1e-05, 'epoch': {step / 100:.2f}}}",
        f" iteration {step:8d}/     100 | consumed samples: {step * 8} | lm loss: {loss:.6E} | nan iterations: 0 |",
        f"[rank{rank}]: Epoch 1, step {step}: loss={loss:.3f}",
        f'{{"level":"info","step":{step},"loss":{loss:.3f}}}',
        f"2026-11-20 10:00:{step:02d} INFO [trainer] step={step} loss={loss:.4f} tokens/s=12000",
    )
    return lines[way]


def noisy_run(seed: int) -> dict[str, str]:
    """The logs of one run, by name: one for each rank."""
    draw = random.Random(seed)
    way, head, end, ranks = draw.randrange(WAYS), draw.choice(HEADS), draw.choice(ENDS), draw.choice((1, 2, 4))
    files = {}
    for rank in range(ranks):
        lines = []
        for step in range(1, STEPS + 1):
            lines.append(step_line(way, step, rank))
            if step <= LAST_NOISE and draw.random() < 0.3:
                noise = draw.choice(NOISE)
                lines += noise.replace("{r}", str(rank)).replace("{s}", str(step)).split("\n")
        lines += [end] if end else []
        before = head.replace("{rank}", str(rank))
        files[f"rank{rank}" if ranks > 1 else "train"] = "".join(f"{before}{line}\n" for line in lines)
    return files
