from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingJob, TrainingLaunch, TrainingScript, apply_rules


@check(severity=WARNING, area="training")
def launch_data_not_sharded(training: TrainingLaunch) -> Iterator[Finding]:
    """Each data parallel rank reads its own part of the data.

    ## Why it matters
    Without a DistributedSampler, or num_shards and shard_id in MindSpore, every rank reads all of the data in the same
    order. The training runs, and eight NPUs do the work of one: the gradients of all ranks are the same.

    ## What to do
    At {where}: `DataLoader(..., sampler=DistributedSampler(dataset))`; in MindSpore
    `num_shards=get_group_size(), shard_id=get_rank()`.

    ## Source
    PyTorch, DistributedSampler (https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler);
    MindSpore, tutorial "Data Parallel"
    (https://www.mindspore.cn/docs/en/r2.5.0/model_train/parallel/data_parallel.html).
    """
    yield from apply_rules(training, script_rules=(_torch, _mindspore))


def _alone(job: TrainingJob) -> bool:
    setting = job.launch.get("world_size")
    return setting is not None and setting.value == 1


def _torch(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    if not (script.has("ddp") and script.has("loader")) or script.has("pipeline") or _alone(job):
        raise NotGiven("loader")  # ranks of one model parallel group read the same data
    if script.has("sampler", "sharding"):
        return
    loader = script.all("loader")[0]
    if script.opaque:
        raise NotDecided(filled("the data may be divided in {0}, which {1} imports", script.opaque, script.path))
    yield Finding(
        "every rank reads all of the data: the DataLoader at {where} has no DistributedSampler",
        where=loader.where,
        observed="DataLoader without a sampler, with DistributedDataParallel",
        expected="sampler=DistributedSampler(dataset)",
    )


def _mindspore(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    modes = script.all("parallel_mode")
    if not modes or not script.has("dataset", "sharding") or _alone(job):
        raise NotGiven("dataset")
    if modes[-1].text.lower() != "data_parallel" or script.has("sharding"):
        return
    dataset = script.all("dataset")[0]
    if script.opaque:
        raise NotDecided(filled("the data may be divided in {0}, which {1} imports", script.opaque, script.path))
    yield Finding(
        "every rank reads all of the data: {dataset} at {where} has no num_shards and shard_id",
        dataset=dataset.text,
        where=dataset.where,
        observed="no num_shards, with data_parallel",
        expected="num_shards=get_group_size(), shard_id=get_rank()",
    )
