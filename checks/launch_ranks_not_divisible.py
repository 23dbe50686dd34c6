import math
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingLaunch, View, apply_rules


@check(severity=ERROR, area="training")
def launch_ranks_not_divisible(training: TrainingLaunch) -> Iterator[Finding]:
    """The sizes of the parallel groups fit the number of ranks that the launch starts.

    ## Why it matters
    Every framework divides the ranks of the job into groups for tensor, pipeline, context and expert parallelism, and
    the rest is data parallel. Where the number of ranks is no multiple of their product, it stops at the start with an
    assertion on every rank. MindFormers and Accelerate demand that the product is the number of ranks itself.

    ## What to do
    {edit} The sizes at {where} have {observed}; the job needs {expected}. {start}

    ## Source
    Megatron-LM arguments.py, "world size is not divisible by total_model_size"
    (https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py) and parallel_state.py for experts;
    MindFormers check_rules.py, "should be equal to device_num"
    (https://gitee.com/mindspore/mindformers/blob/dev/mindformers/tools/check_rules.py); Accelerate
    parallelism_config.py, "does not match num_processes"
    (https://github.com/huggingface/accelerate/blob/main/src/accelerate/parallelism_config.py); InternEvo
    parallel_context.py, check_sanity (https://github.com/InternLM/InternEvo); axolotl utils/distributed.py, "The
    configured parallelisms are incompatible with the current world size" (https://github.com/axolotl-ai-cloud/axolotl);
    ParallelDims of torchtune and torchtitan, "Invalid parallel dims" (https://github.com/pytorch/torchtitan);
    LLaMA-Factory v1 accelerator/interface.py, "must equal to world_size", and fsdpturbo.py, "dp_size must be divisible
    by ep_size" (https://github.com/hiyouga/LLaMA-Factory); verl, the workers of the rollout, "is not divisible by
    infer_tp" (https://github.com/volcengine/verl); PaddleNLP trainer/training_args.py, "Total world_size"
    (https://github.com/PaddlePaddle/PaddleNLP).
    """
    yield from apply_rules(training, _total, _experts, _shards, _mesh, _weights, _optimizers, _llama_factory)


def _expected(view: View, world: int, exact: bool) -> str:
    """What the product of the sizes has to be."""
    source = view.listed("world_size")
    return filled("exactly {0}, from {1}", world, source) if exact else _divisor(world, source)


def _divisor(world: int, source: str) -> str:
    return filled("a divisor of {0}, from {1}", world, source)


def _unfitting(view: View, names: tuple[str, ...], product: int, exact: bool) -> Iterator[Finding]:
    """``exact``: the product of the sizes has to be the number of ranks, else a divisor of it."""
    world = view.number("world_size")
    if product != world if exact else world % product:
        yield Finding(
            "the parallel sizes at {where} do not fit {ranks} ranks",
            where=view.place(*names),
            ranks=world,
            observed=filled("a product of {0}: {1}", product, view.listed(*names)),
            expected=_expected(view, world, exact),
            edit=_fitting(view, names, world, exact),
            start=_start(product, exact),
        )


def _start(product: int, exact: bool) -> str:
    """The number of ranks that the sizes fit, where it is one."""
    return filled("The other way: start {0} ranks.", product) if exact else ""


def _fitting(view: View, names: tuple[str, ...], world: int, exact: bool) -> str:
    """The change of one size by which the product fits, of data parallel ranks first; empty where none does."""
    try:
        sizes = {name: view.number(name, 1) for name in names}
    except NotDecided:  # a size of -1 is what the others leave
        return ""
    for name in sorted(sizes, key=lambda name: (name not in ("data", "replicate", "shard"), -sizes[name])):
        others = math.prod(size for other, size in sizes.items() if other != name)
        if sizes[name] == 1 or world % others:
            continue
        most = world // others
        fits = [most] if exact else [size for size in range(min(sizes[name], most), 0, -1) if most % size == 0]
        if fits and fits[0] != sizes[name]:
            return filled("For example {0}.", view.edit(name, fits[0]))
    return ""


def _sizes(view: View) -> tuple[str, ...]:
    if view.framework == "mindformers":
        return ("data", "tensor", "pipeline", "context")
    if view.framework == "accelerate":
        # The sequence of Ulysses uses ranks of the data parallel group in some versions: with it, nothing is claimed.
        return ("replicate", "shard", "tensor", "pipeline", "context")
    sizes = {
        "megatron": ("tensor", "pipeline", "context"),
        "nemo": ("tensor", "pipeline", "context"),
        "internevo": ("tensor", "pipeline"),
        "openrlhf": ("tensor", "context"),
        "paddle": ("tensor", "pipeline"),
        "verl": ("tensor",),
        "axolotl": ("replicate", "shard", "tensor", "context", "expert"),
    }
    return sizes.get(view.framework, ())


def _total(view: View) -> Iterator[Finding]:
    names = _sizes(view)
    if not names or (view.framework == "mindformers" and not _uses_parallel(view)):
        raise NotGiven("sizes")
    if not any(view.has(name) for name in names):
        raise NotGiven("sizes")
    if view.framework == "accelerate" and view.has("sequence_size"):
        raise NotGiven("sizes")
    product = 1
    for name in names:
        product *= view.number(name, 1)
    exact = view.framework == "mindformers" or (view.framework == "accelerate" and view.has("shard", "replicate"))
    yield from _unfitting(view, names, product, exact)


def _uses_parallel(view: View) -> bool:
    """MindFormers compares the sizes in the mode semi_auto_parallel (1) only."""
    setting = view.decided("use_parallel")
    mode = view.decided("parallel_mode")
    return (setting is None or setting.value is not False) and (mode is None or mode.value in (1, "semi_auto_parallel"))


def _experts(view: View) -> Iterator[Finding]:
    if view.framework not in ("megatron", "nemo") or view.number("expert", 1) == 1:
        raise NotGiven("expert")
    if view.flag("extended_experts"):
        raise NotGiven("expert")
    tensor = view.number("expert_tensor", view.number("tensor", 1))
    product = tensor * view.number("expert") * view.number("pipeline", 1)
    world = view.number("world_size")
    if view.has("expert_tensor") or view.number("context", 1) == 1:
        if world % product:
            yield Finding(
                "the groups of experts at {where} do not fit {ranks} ranks",
                where=view.place("expert"),
                ranks=world,
                observed=filled("a product of {0}: {1}", product, view.listed("expert_tensor", "expert", "pipeline")),
                expected=filled("a divisor of {0}, from {1}", world, view.listed("world_size")),
                edit=_fitting(
                    view,
                    ("expert", "expert_tensor" if view.has("expert_tensor") else "tensor", "pipeline"),
                    world,
                    False,
                ),
                start=_start(product, False),
            )
    elif world % product:
        raise NotDecided(
            filled("{0}: versions count experts and context differently", view.listed("expert", "context"))
        )


_MESH = ("replicate", "shard", "tensor", "pipeline", "context")


def _mesh(view: View) -> Iterator[Finding]:
    """torchtune and torchtitan: the product is the number of ranks; a shard of -1, the default, is the rest."""
    names = _MESH
    if view.framework not in ("torchtune", "torchtitan") or not view.has(*names):
        raise NotGiven("sizes")
    setting = view.decided("shard")
    exact = setting is not None and setting.value != -1
    product = 1
    for name in names if exact else [name for name in _MESH if name != "shard"]:
        product *= view.number(name, 1)
    yield from _unfitting(view, names, product, exact)


def _weights(view: View) -> Iterator[Finding]:
    """InternEvo: weight and pipeline parallel ranks, too, divide the ranks of the job."""
    if view.framework != "internevo" or view.number("weight", 1) == 1:
        raise NotGiven("weight")
    product, world = view.number("weight") * view.number("pipeline", 1), view.number("world_size")
    if world % product:
        yield Finding(
            "the groups that share weights at {where} do not fit {ranks} ranks",
            where=view.place("weight"),
            ranks=world,
            observed=filled("a product of {0}: {1}", product, view.listed("weight", "pipeline")),
            expected=filled("a divisor of {0}, from {1}", world, view.listed("world_size")),
            edit=_fitting(view, ("weight", "pipeline"), world, False),
            start=_start(product, False),
        )


def _shards(view: View) -> Iterator[Finding]:
    if view.framework not in ("fsdp", "deepspeed"):
        raise NotGiven("sizes")
    world = view.number("world_size")
    if view.framework == "fsdp" and view.has("shard") and view.need("shard").value == -1:
        names: tuple[str, ...] = tuple(name for name in _MESH if name != "shard")
        yield from _unfitting(view, names, math.prod(view.number(name, 1) for name in names), False)
        return
    if view.framework == "fsdp":
        product = view.number("shard") * view.number("replicate")
        for name in ("tensor", "pipeline", "context"):
            product *= view.number(name, 1)
        names = _MESH
        wrong = product != world
    else:
        names = ("mics",) if view.has("mics") and view.need("mics").value != -1 else ("hpz",)
        product = view.number(names[0])
        wrong = bool(world % product)
    if wrong:
        yield Finding(
            "the groups that share one copy of the model at {where} do not fit {ranks} ranks",
            where=view.place(*names),
            ranks=world,
            observed=filled("a product of {0}: {1}", product, view.listed(*names)),
            expected=_expected(view, world, view.framework == "fsdp"),
            edit=_fitting(view, tuple(name for name in names if view.has(name)), world, view.framework == "fsdp"),
            start=_start(product, view.framework == "fsdp"),
        )


def _optimizers(view: View) -> Iterator[Finding]:
    """Megatron-LM divides the data parallel and context parallel ranks into copies of the optimizer (HSDP)."""
    if view.framework != "megatron":
        raise NotGiven("optimizer_copies")
    copies, parts = view.number("optimizer_copies"), view.number("tensor", 1) * view.number("pipeline", 1)
    world = view.number("world_size")
    if world % parts == 0 and world // parts % copies:
        yield Finding(
            "the copies of the optimizer at {where} do not fit {ranks} ranks",
            where=view.place("optimizer_copies"),
            ranks=world,
            observed=filled(
                "{0}, {1} data and context parallel ranks", view.listed("optimizer_copies"), world // parts
            ),
            expected=filled("a divisor of {0}", world // parts),
        )


def _llama_factory(view: View) -> Iterator[Finding]:
    """LLaMA-Factory v1: two meshes of all ranks; a size that is not given is the rest."""
    if view.framework != "llamafactory":
        raise NotGiven("sizes")
    for names in (("replicate", "shard"), ("context", "data")):
        if not view.has(*names):
            continue
        exact = view.has(names[1])
        product = view.number(names[0], 1) * (view.number(names[1]) if exact else 1)
        yield from _unfitting(view, names, product, exact)
    if view.has("expert") and view.text("backend") == "fsdpturbo":
        world, context = view.number("world_size"), view.number("context", 1)
        ranks, experts = view.number("data", world // context), view.number("expert")
        if world % context == 0 and ranks % experts:
            yield Finding(
                "the groups of experts at {where} do not fit {ranks} data parallel ranks",
                where=view.place("expert"),
                ranks=ranks,
                observed=view.listed("expert", "context", "data"),
                expected=filled("a divisor of {0}, from {1}", ranks, view.listed("world_size")),
            )
