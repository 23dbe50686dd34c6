# mypy: ignore-errors
"""A user's program: a loop with accelerate, its loader shards or dispatched batches, accumulation and a validation."""

import os

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, Dataset

seed = int(os.environ.get("SEED", "1"))
dispatch = os.environ.get("DISPATCH") == "1"


class Points(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # item
        return self.rows[index], (self.rows[index].sum() > 0).long()


accelerator = Accelerator(
    cpu=True,
    gradient_accumulation_steps=int(os.environ.get("ACCUMULATE", "2")),
    dataloader_config=DataLoaderConfiguration(dispatch_batches=dispatch, split_batches=dispatch),
)
rank, world = accelerator.process_index, accelerator.num_processes
# begun
set_seed(seed, device_specific=False)
# seeded
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.Linear(16, 2))
# model
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
workers = int(os.environ.get("WORKERS", "0"))
loader = DataLoader(Points(96), batch_size=2 * world if dispatch else 2, shuffle=True, num_workers=workers)
validation = DataLoader(Points(12), batch_size=2 * world if dispatch else 2)
model, optimizer, loader, validation = accelerator.prepare(model, optimizer, loader, validation)
# wrapped
losses = []
step = 0
for epoch in range(2):
    model.train()
    for number, (rows, labels) in enumerate(loader):
        if number == 8:
            break
        # step
        # rows
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(rows), labels)
            # loss
            accelerator.backward(loss)
            # reduced
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        step += 1
    model.eval()
    with torch.no_grad():
        for rows, labels in validation:
            predictions = model(rows).argmax(1)
            accelerator.gather_for_metrics((predictions, labels))
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
accelerator.wait_for_everyone()
dist.destroy_process_group()
