from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingLaunch, View, apply_rules


@check(severity=ERROR, area="training")
def launch_batch_not_divisible(training: TrainingLaunch) -> Iterator[Finding]:
    """The global batch is the micro batch times the data parallel ranks times the accumulation steps.

    ## Why it matters
    Frameworks derive the missing one of the three from the others, and stop on every rank where that leaves a
    remainder. After a change of the number of ranks the global batch is what no longer fits.

    ## What to do
    {edit} The place with the error: {where} has {observed}, and needs {expected}; scale the learning rate by the same
    factor. Or keep the global batch, and change the gradient accumulation or the micro batch instead, so that the
    product is it.

    ## Source
    Megatron-LM num_microbatches_calculator.py, "global batch size is not divisible by micro batch size times data
    parallel size" (https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/num_microbatches_calculator.py);
    DeepSpeed runtime/config.py, "train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size"
    (https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py); Transformers
    integrations/deepspeed.py, "config values that mismatch TrainingArguments values"
    (https://github.com/huggingface/transformers/blob/main/src/transformers/integrations/deepspeed.py): its Trainer
    compares them, so a program whose own text has none gets a warning; MindSpore,
    TransformerOpParallelConfig, micro_batch_num
    (https://www.mindspore.cn/docs/en/r1.9/api_python/transformer/mindspore.nn.transformer.TransformerOpParallelConfig.html);
    LLaMA-Factory v1 core/utils/batching.py, "Global batch size must be divisible by DP size and micro batch size"
    (https://github.com/hiyouga/LLaMA-Factory); verl, trainer/ppo/ray_trainer.py, `_validate_config`, which some
    versions leave out, and workers/fsdp_workers.py, "normalized ppo_mini_batch_size ... should be divisible by
    ppo_micro_batch_size_per_gpu": warnings (https://github.com/volcengine/verl); OpenRLHF,
    openrlhf/utils/deepspeed/deepspeed.py, `get_ds_train_config`, which gives DeepSpeed the batch and the micro batch
    (https://github.com/OpenRLHF/OpenRLHF).
    """
    yield from apply_rules(
        training, _megatron, _interleaved, _deepspeed, _trainer, _micro_batches, _llama_factory, _verl, _verl_parts
    )


def _data_ranks(view: View, batch: int = 0, micro: int = 1) -> int:
    """Of an unknown number of hosts: those of one, where the batch fits no number of them."""
    divisor = view.number("tensor", 1) * view.number("pipeline", 1) * view.number("context", 1)
    try:
        world = view.number("world_size")
    except NotDecided:
        world = view.number("ranks_per_node")
        if divisor > 1 or batch % (micro * world) == 0:
            raise
    if world % divisor:
        raise NotGiven("data")  # another check's finding
    return world // divisor


def _indivisible(view: View, batch: int, micro: int, ranks: int) -> Iterator[Finding]:
    if batch % (micro * ranks):
        yield Finding(
            "the global batch at {where} is no multiple of {step}, a micro batch on each data parallel rank",
            where=view.place("batch"),
            step=micro * ranks,
            observed=filled("{0}, {1} data parallel ranks", view.listed("batch", "micro_batch"), ranks),
            expected=filled("a multiple of {0}", micro * ranks),
            edit=filled("For example {0}.", view.edit("batch", max(batch // (micro * ranks), 1) * micro * ranks)),
        )


def _megatron(view: View) -> Iterator[Finding]:
    if view.framework not in ("megatron", "nemo", "openrlhf") or view.has("ramp", "dynamic"):
        raise NotGiven("batch")
    batch, micro = view.number("batch"), view.number("micro_batch")
    ranks = _data_ranks(view, batch, micro)
    yield from _indivisible(view, batch, micro, ranks)


def _interleaved(view: View) -> Iterator[Finding]:
    if view.framework != "megatron" or view.has("ramp"):
        raise NotGiven("batch")
    if not view.has("virtual_layers", "virtual_stages") or view.number("pipeline", 1) < 2:
        raise NotGiven("virtual_layers")
    batch, micro, ranks, stages = (
        view.number("batch"),
        view.number("micro_batch"),
        _data_ranks(view),
        view.number("pipeline"),
    )
    count = batch // (micro * ranks)
    if batch % (micro * ranks) == 0 and count < stages:
        yield Finding(
            "the interleaved schedule at {where} has fewer micro batches than pipeline stages",
            where=view.place("batch"),
            observed=filled(
                "{0} micro batches: {1}, {2} data parallel ranks", count, view.listed("batch", "micro_batch"), ranks
            ),
            expected=filled("at least {0}", stages),
        )


def _deepspeed(view: View) -> Iterator[Finding]:
    if view.framework != "deepspeed" or view.flag("elastic"):
        raise NotGiven("batch")
    batch = view.number("batch")
    micro = view.number("micro_batch") if view.has("micro_batch") else 0
    steps = view.number("accumulation") if view.has("accumulation") else 0
    if batch % ((micro or 1) * (steps or 1)):  # with any number of ranks
        yield Finding(
            "the train_batch_size at {where} is not {product}",
            where=view.place("batch"),
            product=filled("{0} x {1} x {2} ranks", micro or "micro batch", steps or "steps", "any number of"),
            observed=view.listed("batch", "micro_batch", "accumulation"),
            expected=filled("a multiple of {0}", (micro or 1) * (steps or 1)),
            edit="",
        )
        return
    world, least = _of_model_parallel(view, _ranks(view, batch, (micro or 1) * (steps or 1)))
    divisors = [world // parts for parts in range(1, world + 1) if world % parts == 0] if least else [world]
    fitting = [ranks for ranks in divisors if _fits(batch, micro, steps, ranks)]
    if fitting and fitting[0] != world:
        raise NotDecided(
            filled(
                "{0}: fits {1} data parallel ranks, and the model parallelism is unread",
                view.listed("batch"),
                fitting[0],
            )
        )
    if not fitting:
        product = filled("{0} x {1} x {2} ranks", micro or "micro batch", steps or "steps", world)
        yield Finding(
            "the train_batch_size at {where} is not {product}",
            where=view.place("batch"),
            product=product,
            observed=view.listed("batch", "micro_batch", "accumulation", "world_size"),
            expected=f"{micro * steps * world}"
            if micro and steps
            else filled("a multiple of {0}", (micro or steps or 1) * world),
            edit=filled("For example {0}.", view.edit("batch", micro * steps * world)) if micro and steps else "",
        )


def _ranks(view: View, batch: int, step: int) -> int:
    """Of the job. Of an unknown number of hosts: those of one, where no number of them fits. Raises: NotDecided."""
    each = view.job.launch.get("ranks_per_node")
    try:
        return view.number("world_size")
    except NotDecided:
        number = each.value if each else None
        if isinstance(number, int) and number > 0 and batch // step % number:
            divided, may_divide = _of_model_parallel(view, number)
            if divided == number and not may_divide:
                return number
        raise


def _fits(batch: int, micro: int, steps: int, ranks: int) -> bool:
    if micro and steps:
        return batch == micro * steps * ranks
    return batch % ((micro or steps or 1) * ranks) == 0


def _of_model_parallel(view: View, world: int) -> tuple[int, bool]:
    """Data parallel ranks, and whether the program may divide them further."""
    for other in view.job.configurations:
        if other.framework == "megatron":
            return _data_ranks(View(view.job, other)), False
    parts = view.number("context", 1) * view.number("tensor", 1)
    if parts > 1:
        return (world // parts if world % parts == 0 else world), False
    scripts = view.job.scripts
    plain = bool(scripts) and not any(script.has("pipeline") or script.opaque for script in scripts)
    trainer = any(other.framework in ("transformers", "llamafactory") for other in view.job.configurations)
    return world, not (plain or trainer)


def _trainer(view: View) -> Iterator[Finding]:
    """Transformers compares its arguments with the DeepSpeed configuration that they name."""
    if view.framework != "deepspeed":
        raise NotGiven("micro_batch")
    trainers = [other for other in view.job.configurations if other.framework == "transformers"]
    if not trainers:
        raise NotGiven("micro_batch")
    argument_view, scripts = View(view.job, trainers[0]), view.job.scripts
    has_trainer = not scripts or any(script.has("trainer") for script in scripts)
    if not has_trainer and not any(script.opaque for script in scripts):
        return
    for name, default in (("micro_batch", 8), ("accumulation", 1)):
        if not view.has(name):
            continue
        of_file, of_line = view.number(name), argument_view.number(name, default)
        if of_file != of_line:
            finding = Finding(
                "{option} at {where} is {number}, and the program's argument {argument}",
                option=view.need(name).option,
                where=view.place(name),
                number=of_file,
                argument=of_line,
                observed=view.listed(name),
                expected=argument_view.listed(name) or filled("{0}, the default of Transformers", of_line),
            )
            yield finding.as_warning(not has_trainer)


def _micro_batches(view: View) -> Iterator[Finding]:
    if view.framework != "mindformers" or view.number("pipeline", 1) < 2:
        raise NotGiven("micro_batches")
    if view.text("run_mode") in ("predict", "eval", "export"):
        raise NotGiven("micro_batches")
    count, stages = view.number("micro_batches", 1), view.number("pipeline")
    if count < stages:
        yield Finding(
            "the micro_batch_num at {where} is below the {stages} pipeline stages",
            where=view.place("micro_batches", "pipeline"),
            stages=stages,
            observed=count,
            expected=filled("at least {0}", stages),
        )


def _llama_factory(view: View) -> Iterator[Finding]:
    if view.framework != "llamafactory":
        raise NotGiven("batch")
    batch, micro, world, context = (
        view.number("batch"),
        view.number("micro_batch", 1),
        view.number("world_size"),
        view.number("context", 1),
    )
    if world % context:
        raise NotGiven("data")  # another check's finding
    ranks = view.number("data", world // context)
    yield from _indivisible(view, batch, micro, ranks)


def _verl(view: View) -> Iterator[Finding]:
    if view.framework != "verl" or view.flag("dynamic"):
        raise NotGiven("batch")
    batch, mini = view.number("batch"), view.number("mini_batch")
    if batch < mini:
        yield Finding(
            "the batch at {where} is smaller than a mini batch of PPO",
            where=view.place("batch"),
            observed=view.listed("batch", "mini_batch"),
            expected=filled("at least {0}", mini),
        )


def _verl_parts(view: View) -> Iterator[Finding]:
    """The batch is divided among the ranks; each rank's part of a mini batch into micro batches. Not with Megatron."""
    if view.framework != "verl" or view.has("megatron") or "megatron" in view.text("strategy") + view.text("recipe"):
        raise NotGiven("batch")
    world, responses = view.number("world_size"), view.number("responses", 1)
    if view.has("batch") and view.number("batch") * responses % world:
        yield Finding(
            "the batch at {where} cannot be divided among {ranks} ranks",
            where=view.place("batch"),
            ranks=world,
            observed=view.listed("batch", "responses"),
            expected=filled("their product: a multiple of {0}", world),
        ).as_warning()
    if view.flag("dynamic"):
        return
    groups = world // view.number("ulysses", 1)
    each, micro = view.number("mini_batch") * responses // max(groups, 1), view.number("micro_per_rank")
    if each % micro:
        yield Finding(
            "the part of a mini batch that each rank has, {number} at {where}, is no multiple of its micro batch",
            number=each,
            where=view.place("mini_batch"),
            observed=view.listed("mini_batch", "responses", "ulysses", "micro_per_rank"),
            expected=filled("a multiple of {0}", micro),
        ).as_warning()
