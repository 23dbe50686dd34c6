# mypy: ignore-errors
"""A user's program: DeepSpeed's engine with ZeRO of stage 0 to 3 and accumulation."""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

seed = int(os.environ.get("SEED", "1"))
deepspeed.ops.__compatible_ops__.clear()  # nothing is compiled
deepspeed.init_distributed(dist_backend="gloo", verbose=False)
rank, world = dist.get_rank(), dist.get_world_size()
# begun


class Points(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # item
        return self.rows[index], (self.rows[index].sum() > 0).long()


torch.manual_seed(seed)
# seeded
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2))
# model
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": int(os.environ.get("ACCUMULATE", "2")),
    "zero_optimization": {"stage": int(os.environ.get("STAGE", "1"))},
    "gradient_clipping": float(os.environ.get("CLIP", "1")),
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 10**9,
}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = Points(96)
sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=seed)
loader = DataLoader(data, batch_size=2, sampler=sampler, num_workers=int(os.environ.get("WORKERS", "0")))
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
# wrapped
losses = []
step = 0
for epoch in range(2):
    sampler.set_epoch(epoch)
    for number, (rows, labels) in enumerate(loader):
        if number == 8 and "FULL" not in os.environ:
            break
        # step
        # rows
        loss = torch.nn.functional.cross_entropy(engine(rows), labels)
        # loss
        engine.backward(loss)
        # reduced
        engine.step()
        losses.append(loss.item())
        step += 1
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    result = torch.cat([tensor.detach().reshape(-1).clone() for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
