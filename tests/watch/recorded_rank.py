"""A rank as the hook records it, without torch: what costs seconds to import is not needed to write a page.

    python recorded_rank.py STEPS RANK STEP [memory]

Runs under `doctor watch`, by RANK and WORLD_SIZE. Every rank makes one call a step; rank RANK makes none from step STEP
on, and the others are in theirs for good. ``memory``: it takes memory until it is killed, at most 2 GiB.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from doctor.watch.hook.rank_files import TRAINING, start_recording


def main() -> None:
    steps, stuck_rank, stuck_step = map(int, sys.argv[1:4])
    threading.Thread(target=threading.Semaphore(0).acquire, daemon=True).start()  # it waits for a lock, as torch's do
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    files = start_recording(rank, world)  # type: ignore[no-untyped-call]
    files.emit("joined", rank=rank, world=world, backend="gloo")
    files.emit("group", gid=0, name="0", desc="", ranks=list(range(world)))
    files.stage = TRAINING
    files.become("compute")
    for step in range(steps):
        if rank == stuck_rank and step == stuck_step:
            taken = [b"x" * (1 << 20) for _ in range(2048 * ("memory" in sys.argv))]
            time.sleep(1000 * (not taken))
        files.begin(0, "all_reduce", "float32", -1, 8)
        if step == stuck_step:
            time.sleep(1000)
        files.next_step()
        time.sleep(0.02)
    files.emit("end")
    files.become("done")


if __name__ == "__main__":
    main()
