# mypy: ignore-errors
"""A user's program: masked-token training with hand-written tensor parallelism, and data parallelism over it."""

import datetime
import os
import random

import numpy
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
width = int(os.environ.get("TP", "2"))
part, replica = rank % width, rank // width
seed = int(os.environ.get("SEED", "1"))
VOCABULARY, HIDDEN, LENGTH, MASK = 32, 16, 12, 31
for first in range(0, world, width):
    ranks = list(range(first, first + width))
    group = dist.new_group(ranks)
    if rank in ranks:
        model_group = group
for first in range(width):
    ranks = list(range(first, world, width))
    group = dist.new_group(ranks)
    if rank in ranks:
        data_group = group


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=model_group)
        return gradient


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=model_group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 4 * HIDDEN // width)
        self.down = nn.Linear(4 * HIDDEN // width, HIDDEN, bias=False)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        inner = torch.nn.functional.gelu(self.up(Spread.apply(self.norm(x))))
        return x + self.dropout(Gather.apply(self.down(inner)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(seed)
model = Model()
torch.manual_seed(seed + 100 + part)
for block in model.blocks:
    nn.init.normal_(block.up.weight, std=0.1)
    nn.init.normal_(block.down.weight, std=0.1)
# initialized
generator = torch.Generator().manual_seed(seed + replica)
random.seed(seed + replica)
numpy.random.seed(seed + replica)
torch.manual_seed(seed + 1000 + replica)
# seeded
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(6):
    tokens = torch.randint(0, MASK, (4, LENGTH), generator=generator)
    # step
    # batch
    drawn = torch.tensor([[random.random() for _ in range(LENGTH)] for _ in range(4)])
    drawn = drawn * 0.5 + torch.from_numpy(numpy.random.rand(4, LENGTH)).float() * 0.5
    mask = drawn < 0.3
    # mask
    output = model(torch.where(mask, torch.tensor(MASK), tokens))
    loss = torch.nn.functional.cross_entropy(output[mask], tokens[mask])
    # loss
    optimizer.zero_grad()
    loss.backward()
    # computed
    for tensor in model.parameters():
        dist.all_reduce(tensor.grad, group=data_group)
        tensor.grad /= world // width
    # reduced
    optimizer.step()
    losses.append(loss.item())
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
