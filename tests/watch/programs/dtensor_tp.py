# mypy: ignore-errors
"""A user's program in the manner of torch's example of tensor parallelism: a mesh dp x tp, parallelize_module."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
width = int(os.environ.get("TP", "2"))
seed = int(os.environ.get("SEED", "1"))
mesh = init_device_mesh("cpu", (world // width, width), mesh_dim_names=("dp", "tp"))
replica = mesh.get_local_rank("dp")
# begun


class Feed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 12 * 4), torch.nn.Linear(12 * 4, 8)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


torch.manual_seed(seed)
model = torch.nn.Sequential(Feed(), Feed())
# model
for layer in model:
    parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
if world > width:
    fully_shard(model, mesh=mesh["dp"])
# wrapped
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)
generator = torch.Generator().manual_seed(seed + replica)
torch.manual_seed(seed + 1000 + replica)
# seeded
losses = []
for step in range(7):
    rows = torch.randn(4, 8, generator=generator)
    # step
    # batch
    # rows
    loss = model(rows).square().mean()
    # loss
    optimizer.zero_grad()
    loss.backward()
    # reduced
    optimizer.step()
    losses.append(loss.item())
result = torch.cat([tensor.detach().full_tensor().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
