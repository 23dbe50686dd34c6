"""A real job: a process group of Gloo, and a data loader whose workers pass batches of 32 MiB through /dev/shm."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Ones(Dataset):  # type: ignore[misc,type-arg,unused-ignore]
    """64 items of 4 MiB."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(1 << 20)


def main() -> None:
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29777", rank=0, world_size=1)
    for batch in DataLoader(Ones(), batch_size=8, num_workers=4):
        total = batch.sum()
        dist.all_reduce(total)
    print("the job lives")


if __name__ == "__main__":
    main()
