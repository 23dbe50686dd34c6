# mypy: ignore-errors
"""A user's program: a small language model under the Trainer of transformers, with evaluation and accumulation."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

seed = int(os.environ.get("SEED", "1"))
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
losses = []


class Texts(Dataset):
    def __init__(self, count, first):
        generator = torch.Generator().manual_seed(seed + first)
        self.rows = torch.randint(0, 48, (count, 12), generator=generator)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # item
        return {"input_ids": self.rows[index], "labels": self.rows[index]}


class UserTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        step = self.state.global_step if model.training else -1
        # step
        rows = inputs["input_ids"]
        # rows
        inputs = {**inputs, "input_ids": rows}
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True, num_items_in_batch=num_items_in_batch)
        # loss
        if step >= 0:
            losses.append(loss.item())
        return (loss, outputs) if return_outputs else loss


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, use_cpu=True, ddp_backend="gloo", seed=seed, max_steps=7, learning_rate=0.01,
        per_device_train_batch_size=2, gradient_accumulation_steps=int(os.environ.get("ACCUMULATE", "2")),
        eval_strategy="steps", eval_steps=3, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=100,
        lr_scheduler_type="constant", dataloader_pin_memory=False,
        dataloader_num_workers=int(os.environ.get("WORKERS", "0")),
    )  # fmt: skip
    set_seed(seed)
    config = GPT2Config(vocab_size=48, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)
    # begun
    # model
    trainer = UserTrainer(model=model, args=arguments, train_dataset=Texts(96, 0), eval_dataset=Texts(8, 5))
    # trainer
    trainer.train()
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
