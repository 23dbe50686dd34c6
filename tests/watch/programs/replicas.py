# mypy: ignore-errors
"""A user's program: DistributedDataParallel, a DistributedSampler, dropout."""

import datetime
import os
import random

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
seed = int(os.environ.get("SEED", "1"))
random.seed(seed + rank)
torch.manual_seed(seed)
data = torch.randn(96, 12, generator=torch.Generator().manual_seed(seed))
labels = (data[:, :4].sum(1) > 0).long()
model = torch.nn.Sequential(
    torch.nn.Linear(12, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2)
)
# before wrapping
model = DistributedDataParallel(model)
# wrapped
torch.manual_seed(seed * 1000 + rank)
sampler = DistributedSampler(TensorDataset(data, labels), num_replicas=world, rank=rank, seed=seed)
loader = DataLoader(TensorDataset(data, labels), batch_size=4, sampler=sampler)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
step = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (rows, wanted) in enumerate(loader):
        if number == 3 and "FULL" not in os.environ:
            break
        # step
        # rows
        optimizer.zero_grad()
        output = model(rows)
        loss = torch.nn.functional.cross_entropy(output, wanted)
        # loss
        loss.backward()
        # reduced
        optimizer.step()
        losses.append(loss.item())
        step += 1
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
