# mypy: ignore-errors
"""A user's program: a LightningModule under DDP, with the sanity check, validation and a synchronized metric."""

import logging
import os
import warnings

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
seed = int(os.environ.get("SEED", "1"))
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
losses = []


class Points(Dataset):
    def __init__(self, count):
        self.rows = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        # item
        return self.rows[index], (self.rows[index].sum() > 0).long()


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)
        )

    def training_step(self, batch, number):
        rows, labels = batch
        step, model = self.global_step, self
        # step
        # rows
        loss = torch.nn.functional.cross_entropy(self.layers(rows), labels)
        # loss
        losses.append(loss.item())
        self.log("loss", loss, sync_dist=True)
        return loss

    def on_before_optimizer_step(self, optimizer):
        step, model = self.global_step, self
        # reduced

    def validation_step(self, batch, number):
        rows, labels = batch
        self.log("val", torch.nn.functional.cross_entropy(self.layers(rows), labels), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


lightning.seed_everything(seed, verbose=False)
model = Classifier()
# begun
# model
workers = int(os.environ.get("WORKERS", "0"))
trainer = lightning.Trainer(
    accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), max_epochs=2, limit_train_batches=8,
    strategy=DDPStrategy(process_group_backend="gloo"), plugins=[TorchElasticEnvironment()], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, barebones=False,
    accumulate_grad_batches=int(os.environ.get("ACCUMULATE", "1")),
)  # fmt: skip
train = DataLoader(Points(96), batch_size=4, shuffle=True, num_workers=workers)
trainer.fit(model, train, DataLoader(Points(12), batch_size=4))
result = torch.cat([tensor.detach().reshape(-1) for tensor in model.parameters()])
dist.barrier()
dist.destroy_process_group()
