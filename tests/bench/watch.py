"""What `doctor watch` costs a training: paired runs with and without it, side by side in time.

    python -m tests.bench.watch [--ranks 8] [--pairs 5] [--steps 60] [--milliseconds 50]

Each step is so many milliseconds of waiting, so that ranks beyond the number of CPUs do not hold each other up, and a
step of DistributedDataParallel with its collectives. All steps count, those in which data is looked at as well. The
share of a step that the hook takes is its CPU time, which another load on the machine does not change as it changes the
time by the clock; both are printed.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

BEGINNING = 4
"""Steps of which the data of most is looked at, and in which the state that a training begins with is written."""


def ranks_program(world: int, steps: int, seconds: float) -> None:
    """The training itself; rank 0 prints what a step took of CPU and of the clock, over all ranks together."""
    import torch
    import torch._dynamo
    import torch.distributed as dist

    from tests.watch.program import free_port

    torch.set_num_threads(1)
    port, children = free_port(), []
    for rank in range(world):
        if pid := os.fork():
            children.append(pid)
            continue
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
        layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
        model = torch.nn.parallel.DistributedDataParallel(layers, bucket_cap_mb=0.03)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch, spent = torch.randn(4, 64), torch.zeros(3, dtype=torch.float64)
        cpu, clock = time.process_time(), time.monotonic()
        begun = cpu
        for step in range(steps):
            begun = time.process_time() if step == BEGINNING else begun
            time.sleep(seconds)
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach())
        numbers = [time.process_time() - begun, time.monotonic() - clock, begun - cpu]
        spent += torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(spent)
        if rank == 0:
            cpu, clock, begun = (float(number) / world for number in spent)
            print(f"cpu {cpu / (steps - BEGINNING):.7f} clock {clock / steps:.7f} begun {begun:.7f}", flush=True)
        dist.destroy_process_group()
        os._exit(0)
    for pid in children:
        os.waitpid(pid, 0)


def measured(arguments: list[str]) -> tuple[float, ...]:
    """Seconds of CPU of one rank in a later step, by the clock in a step, and of CPU in the first steps together."""
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=True)
    match = re.search(r"cpu (\S+) clock (\S+) begun (\S+)", done.stdout)
    assert match, done.stderr
    return tuple(map(float, match.groups()))


def main() -> None:
    """Prints the cost; gates nothing."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--milliseconds", type=float, default=50.0)
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        ranks_program(options.ranks, options.steps, options.milliseconds / 1000)
        return
    arguments = [
        sys.executable,
        "-m",
        "tests.bench.watch",
        "--train",
        f"--ranks={options.ranks}",
        f"--steps={options.steps}",
        f"--milliseconds={options.milliseconds}",
    ]
    watched = [sys.executable, "-m", "doctor", "watch", "--", *arguments]
    pairs = []
    for number in range(options.pairs):
        both = (
            (measured(arguments), measured(watched)) if number % 2 else (measured(watched), measured(arguments))[::-1]
        )
        pairs.append(both)
        print(f"pair {number}: CPU of a step {both[0][0] * 1e3:.2f} ms alone, {both[1][0] * 1e3:.2f} ms watched")
    cpu = statistics.median(after[0] - before[0] for before, after in pairs)
    clock = statistics.median(after[1] / before[1] for before, after in pairs)
    begun = statistics.median(after[2] - before[2] for before, after in pairs)
    alone = statistics.median(before[1] for before, _ in pairs)
    print(f"{options.ranks} ranks: {cpu * 1e6:.0f} us of CPU a step and rank, {100 * cpu / alone:.2f} % of a step")
    print(f"the first {BEGINNING} steps: {begun * 1e3:.0f} ms of CPU in all, 1 % of {begun * 100:.0f} s")
    print(f"by the clock: {clock:.3f} times, median of {options.pairs} pairs")


if __name__ == "__main__":
    main()
