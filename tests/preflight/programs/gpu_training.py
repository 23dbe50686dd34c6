# mypy: ignore-errors
"""DDP over NCCL with a loader worker and a checkpoint: `torchrun --nproc-per-node N gpu_training.py`."""

import os
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS, WIDTH = 12, 1024
LOCAL_RANK = int(os.environ["LOCAL_RANK"])


class Rows(Dataset):
    """Random rows."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return torch.randn(WIDTH)


folder = tempfile.mkdtemp()
torch.cuda.set_device(LOCAL_RANK)
dist.init_process_group("nccl", timeout=timedelta(seconds=25))
model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH).cuda(), device_ids=[LOCAL_RANK])
optimizer = torch.optim.AdamW(model.parameters())
large = torch.ones(1 << 24, device="cuda")
for step, rows in enumerate(DataLoader(Rows(), batch_size=16, num_workers=1, pin_memory=True)):
    optimizer.zero_grad()
    model(rows.cuda(non_blocking=True)).pow(2).mean().backward()
    optimizer.step()
    dist.all_reduce(large)
    if step == STEPS:
        break
torch.save(model.state_dict(), Path(folder) / "model.pt")
dist.barrier()
torch.cuda.synchronize()
print("training finished", dist.get_rank(), flush=True)
dist.destroy_process_group()
