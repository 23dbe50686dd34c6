# mypy: ignore-errors
"""A user's program: layers of megatron-core, parallel over columns and rows, and its DistributedDataParallel."""

import os
import random

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.transformer import TransformerConfig

torch.cuda.current_device = lambda: torch.device("cpu")  # megatron-core asks for it to place its buffers
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
width = int(os.environ.get("TP", "2"))
seed = int(os.environ.get("SEED", "1"))
parallel_state.initialize_model_parallel(tensor_model_parallel_size=width)
# begun
replica = parallel_state.get_data_parallel_rank()
HIDDEN, LENGTH, MASK = 16, 12, 31
config = TransformerConfig(
    num_layers=1, hidden_size=HIDDEN, num_attention_heads=2, use_cpu_initialization=True,
    tensor_model_parallel_size=width, gradient_accumulation_fusion=False, params_dtype=torch.float32,
)  # fmt: skip


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        init = config.init_method
        self.embedding = tensor_parallel.VocabParallelEmbedding(32, HIDDEN, init_method=init, config=config)
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.up = tensor_parallel.ColumnParallelLinear(
            HIDDEN, 4 * HIDDEN, config=config, init_method=init, gather_output=False
        )
        self.down = tensor_parallel.RowParallelLinear(
            4 * HIDDEN, HIDDEN, config=config, init_method=init, bias=True, input_is_parallel=True, skip_bias_add=False
        )
        self.dropout = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(HIDDEN, 32)

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        inner = torch.nn.functional.gelu(self.up(self.norm(hidden))[0])
        return self.head(hidden + self.dropout(self.down(inner)[0]))


torch.manual_seed(seed)
core = Model()
# model
model = DistributedDataParallel(
    config, DistributedDataParallelConfig(overlap_grad_reduce=os.environ.get("OVERLAP") == "1"), core
)
model.broadcast_params()
# wrapped
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(seed + replica)
random.seed(seed + replica)
torch.manual_seed(seed + 1000 + replica)
# seeded
losses = []
for step in range(7):
    rows = torch.randint(0, MASK, (2, LENGTH), generator=generator)
    # step
    # batch
    mask = torch.tensor([[random.random() < 0.3 for _ in range(LENGTH)] for _ in range(2)])
    mask[:, 0] = True
    # mask
    model.zero_grad_buffer()
    output = model(torch.where(mask, torch.tensor(MASK), rows))
    loss = torch.nn.functional.cross_entropy(output[mask], rows[mask])
    # loss
    loss.backward()
    model.finish_grad_sync()
    for tensor in model.parameters():
        tensor.grad = tensor.main_grad
    # reduced
    optimizer.step()
    optimizer.zero_grad()  # the gradients are views of megatron-core's buffers, which backward would add to twice
    losses.append(loss.item())
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
