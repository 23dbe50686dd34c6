"""Training programs, sound unless a parameter makes them otherwise. They are read and never run."""

from __future__ import annotations


def torch_ddp(
    *,
    backend: str = "nccl",
    init: str = "",
    device: str = "torch.cuda.set_device(local_rank)",
    local_rank: str = 'local_rank = int(os.environ["LOCAL_RANK"])',
    sampler: str = "sampler = DistributedSampler(dataset)",
    loader: str = "DataLoader(dataset, batch_size=32, sampler=sampler)",
    epoch: str = "sampler.set_epoch(epoch)",
    before: str = "",
    within: str = "",
    imports: str = "",
) -> str:
    """A program with DistributedDataParallel, as the tutorials of PyTorch build it up."""
    init = init or f'dist.init_process_group("{backend}")'
    lines = [
        "import os",
        "import torch",
        "import torch.distributed as dist",
        "from torch.nn.parallel import DistributedDataParallel as DDP",
        "from torch.utils.data import DataLoader, TensorDataset",
        "from torch.utils.data.distributed import DistributedSampler",
        imports,
        "",
        "def main():",
        f"    {local_rank}",
        f"    {init}",
        f"    {device}",
        "    dataset = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))",
        f"    {sampler}",
        f"    loader = {loader}",
        f"    {before}",
        "    model = DDP(torch.nn.Linear(16, 1).cuda())",
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)",
        "    for epoch in range(3):",
        f"        {epoch or 'pass'}",
        "        for features, targets in loader:",
        "            loss = torch.nn.functional.mse_loss(model(features.cuda()), targets.cuda())",
        "            optimizer.zero_grad()",
        "            loss.backward()",
        "            optimizer.step()",
        f"            {within or 'pass'}",
        "    dist.destroy_process_group()",
        "",
        'if __name__ == "__main__":',
        "    main()",
    ]
    return "\n".join(line for line in lines if line.strip() or not line) + "\n"


def torch_npu(**changes: str) -> str:
    """The same on NPUs."""
    return torch_ddp(
        **{
            "backend": "hccl",
            "imports": "import torch_npu",
            "device": "torch.npu.set_device(local_rank)",
            **changes,
        }
    )


def deepspeed_program(model: str = "model = torch.nn.Linear(16, 1)", imports: str = "") -> str:
    """A program that hands the model to DeepSpeed."""
    return f"""import argparse
import deepspeed
import torch
{imports}

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
{model}
engine, _, _, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
for _ in range(100):
    loss = engine(torch.randn(4, 16).to(engine.device)).mean()
    engine.backward(loss)
    engine.step()
"""


def mindspore_program(
    *,
    mode: str = "ms.GRAPH_MODE",
    parallel: str = "parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True",
    seed: str = "ms.set_seed(1)",
    shards: str = ", num_shards=get_group_size(), shard_id=get_rank()",
    network: str = "self.multiply = ops.MatMul()",
    imports: str = "",
) -> str:
    """A program with MindSpore's Model."""
    return f"""import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn, ops
from mindspore.communication import get_group_size, get_rank, init
{imports}

ms.set_context(mode={mode}, device_target="Ascend")
init()
ms.set_auto_parallel_context({parallel})
{seed}


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = ms.Parameter(ms.numpy.ones((16, 16)))
        {network}

    def construct(self, inputs):
        return self.multiply(inputs, self.weight)


data = ds.MnistDataset("/data/mnist", shuffle=True{shards}).batch(32)
model = ms.Model(Network(), nn.MSELoss(), nn.Momentum(Network().trainable_params(), 0.01, 0.9))
model.train(10, data)
"""
