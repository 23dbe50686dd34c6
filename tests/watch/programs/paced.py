"""A training of DistributedDataParallel of which one part can be slower: ``SLOW=input:1``, of rank 1 alone.

MORE: by so many seconds. Parts: ``input``, ``compute``. STEPS: fewer than those of the launch line, which stays that of
the same job.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

import torch
import torch.distributed as dist

STEP, MORE = 0.02, float(os.environ.get("MORE", "0.3"))
PART, _, WHICH = os.environ.get("SLOW", "").partition(":")


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Four for each step."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds / 4)
        return torch.full((64,), float(index % 7))


def main(steps: int) -> None:
    """Goes through the steps."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_slow = not WHICH or int(WHICH) == dist.get_rank()
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
    model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.03)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    samples = Samples(MORE if is_slow and PART == "input" else 0.0)
    batches = iter(torch.utils.data.DataLoader(samples, batch_size=4))
    for _ in range(steps):
        batch = next(batches)
        time.sleep(STEP + (MORE if is_slow and PART == "compute" else 0.0))
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss.detach())
    dist.barrier()
    dist.destroy_process_group()
    atexit._run_exitfuncs()
    os._exit(
        0
    )  # torch may wait for threads of gloo, which wait for the interpreter, where a model is freed after its group


if __name__ == "__main__":
    main(int(os.environ.get("STEPS", sys.argv[1])))
