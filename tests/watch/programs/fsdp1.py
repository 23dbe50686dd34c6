# mypy: ignore-errors
"""A user's program: FullyShardedDataParallel around each layer, with flat or original parameters, or with replicas."""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
seed = int(os.environ.get("SEED", "1"))
options = {"device_mesh": init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))}
if os.environ.get("HYBRID"):
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    options = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh}
# begun
torch.manual_seed(seed)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2))
# model
model = FullyShardedDataParallel(
    model, auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}), use_orig_params=bool(os.environ.get("ORIGINAL")),
    device_id=torch.device("cpu"), **options,
)  # fmt: skip
# wrapped
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(seed + rank)
torch.manual_seed(seed * 1000 + rank)
# seeded
losses = []
for step in range(7):
    rows = torch.randn(4, 8, generator=generator)
    # step
    # rows
    loss = torch.nn.functional.cross_entropy(model(rows), (rows.sum(1) > 0).long())
    # loss
    optimizer.zero_grad()
    loss.backward()
    # reduced
    optimizer.step()
    losses.append(loss.item())
with FullyShardedDataParallel.summon_full_params(model):
    result = torch.cat([tensor.detach().reshape(-1).clone() for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
