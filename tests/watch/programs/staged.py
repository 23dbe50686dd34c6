"""Two stages of a pipeline, each with files of its own, which saves a checkpoint or goes on from it."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

COPIES = False
"""Whether the optimizer has copies of the parameters in another type."""
path, goes_on = os.environ["CHECKPOINT"], os.environ["GOES_ON"] == "1"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1 + rank + 100 * goes_on)
stage = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh())
copies = [tensor.detach().double().requires_grad_() for tensor in stage.parameters()]
optimizer = torch.optim.Adam(copies if COPIES else stage.parameters(), 1e-2)
step, losses = 0, []
if goes_on:
    kept = torch.load(f"{path}-{rank}")
    stage.load_state_dict(kept["stage"])
    optimizer.load_state_dict(kept["optimizer"])
    with torch.no_grad():
        for number, copy in enumerate(copies):
            copy.copy_(kept["copies"][number])
    step = kept["step"]
last = step + 3 if goes_on else 7
while step < last:
    features = torch.cos(torch.arange(24.0).reshape(4, 6) * (step + 1))
    optimizer.zero_grad()
    stage.zero_grad()
    if rank == 0:
        hidden = stage(features)
        dist.send(hidden.detach(), 1)
        gradient = torch.empty_like(hidden)
        dist.recv(gradient, 1)
        hidden.backward(gradient)
        losses.append(0.0)
    else:
        hidden = torch.empty(4, 6)
        dist.recv(hidden, 0)
        loss = torch.nn.functional.cross_entropy(stage(hidden.requires_grad_()), torch.arange(4))
        loss.backward()
        dist.send(hidden.grad, 0)
        losses.append(loss.item())
    if COPIES:
        for copy, tensor in zip(copies, stage.parameters(), strict=True):
            copy.grad = tensor.grad.double()
    optimizer.step()
    if COPIES:
        with torch.no_grad():
            for copy, tensor in zip(copies, stage.parameters(), strict=True):
                tensor.copy_(copy)
    step += 1
    if step == 5 and not goes_on:
        content = {"stage": stage.state_dict(), "optimizer": optimizer.state_dict(), "copies": copies, "step": step}
        torch.save(content, f"{path}-{rank}")
        dist.barrier()
result = torch.zeros(1)
dist.barrier()
dist.destroy_process_group()
