from collections.abc import Iterator, Sequence

from doctor import ERROR, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, Setting, TrainingLaunch, View, apply_rules
from doctor.job.training.configurations import expected_value, value_kinds
from doctor.job.training.model import CUDA_QUEUES

_REFUSE_KEYS = ("megatron", "transformers", "llamafactory", "verl")
"""Frameworks that end at a key that they do not know."""


@check(severity=ERROR, area="training")
def launch_settings_contradict(training: TrainingLaunch) -> Iterator[Finding]:
    """The settings of a configuration do not exclude each other.

    ## Why it matters
    The framework stops at the start, on every rank, or ignores a misspelt key. Examples: fp16 and bf16 together; a key
    that stands twice in a DeepSpeed configuration. A ZeRO stage or a sharding strategy of FSDP that does not exist; a
    size of 0. An interleaved schedule without a pipeline; a sequence longer than the positions of the model.

    ## What to do
    Correct {where}: it has {observed}, and needs {expected}.

    ## Source
    Accelerate, commands/config/config_args.py, "had unknown keys"; Megatron-LM and Transformers, argparse;
    DeepSpeed runtime/config.py, "bfloat16 and fp16 modes cannot be simultaneously enabled", and config_utils.py,
    "Duplicate keys" (https://github.com/deepspeedai/DeepSpeed/tree/master/deepspeed/runtime); Megatron-LM arguments.py,
    "assert not args.bf16", "When interleaved schedule is used" and "max_position_embeddings >= args.seq_length"
    (https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py); PyTorch, ShardingStrategy
    (https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.ShardingStrategy); InternEvo,
    initialize/launch.py, `args_sanity_check`; axolotl, utils/schemas/validation.py, "deepspeed and fsdp cannot be used
    together"; Transformers, trainer.py, "Using --fsdp xxx together with --deepspeed is not possible"; LLaMA-Factory,
    hparams/parser.py, "Quantization is only compatible with the LoRA or OFT method" and "Please specify `max_steps` in
    streaming mode", and its v1 core/base_trainer.py, "Context parallelism currently requires `dist_config.name:
    fsdp2`"; Megatron-LM arguments.py, "--use-torch-fsdp2 is not supported with pipeline parallelism", "Megatron FSDP
    only supports fsdp_dtensor checkpoint format" and "FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than
    one".
    """
    yield from apply_rules(
        training,
        _precision,
        _repeated,
        _misspelt,
        _refused_key,
        _schedule,
        _positions,
        _values,
        _rates,
        _internevo,
        _two_shardings,
        _quantized,
        _llama_factory,
        _file,
        _torch_fsdp,
        _megatron_fsdp,
    )


def _precision(view: View) -> Iterator[Finding]:
    if view.framework not in ("megatron", "deepspeed", "transformers", "axolotl"):
        raise NotGiven("precision")
    if view.flag("fp16") and view.flag("bf16"):
        yield Finding(
            "{where} sets fp16 and bf16",
            where=view.place("fp16"),
            observed=view.listed("fp16", "bf16"),
            expected="one of them",
        )


def _repeated(view: View) -> Iterator[Finding]:
    if view.framework != "deepspeed":
        raise NotGiven("repeated")
    setting = view.decided("repeated")
    if setting is not None:
        yield Finding(
            "{where} has the key {key} twice",
            where=setting.where,
            key=setting.option,
            observed=setting.option,
            expected="each key once",
        )


def _misspelt(view: View) -> Iterator[Finding]:
    """A key that is another one misspelt. Accelerate passes on what sections have, DeepSpeed what stands in none."""
    setting = _decided(view, "misspelt")
    if setting is None:
        raise NotGiven("misspelt")
    is_section = "." in setting.option
    refuses = view.framework in _REFUSE_KEYS or (view.framework, is_section) in (
        ("accelerate", False),
        ("deepspeed", True),
    )
    yield Finding(
        "{key} at {where} is misspelt",
        where=setting.where,
        key=setting.option,
        observed=setting.option,
        expected=str(setting.value),
    ).as_warning(not refuses)


def _refused_key(view: View) -> Iterator[Finding]:
    setting = _decided(view, "refused_key")
    if setting is None:
        raise NotGiven("refused_key")
    yield Finding(
        "{key} at {where} is no key of Accelerate",
        where=setting.where,
        key=setting.option,
        observed=setting.option,
        expected="a key that `accelerate config` writes",
    )


def _schedule(view: View) -> Iterator[Finding]:
    if view.framework != "megatron" or not view.has("virtual_layers", "virtual_stages"):
        raise NotGiven("virtual_layers")
    if view.has("virtual_stages") and view.number("virtual_stages") == 1:
        return
    if view.number("pipeline", 1) < 2:
        yield Finding(
            "{where} sets an interleaved schedule without a pipeline",
            where=view.place("virtual_layers", "virtual_stages"),
            observed=view.listed("virtual_layers", "virtual_stages", "pipeline"),
            expected="--pipeline-model-parallel-size of at least 2",
        )


def _positions(view: View) -> Iterator[Finding]:
    if view.framework != "megatron":
        raise NotGiven("positions")
    sequence, positions = view.number("sequence"), view.number("positions")
    if sequence > positions:
        yield Finding(
            "the sequence at {where} is longer than its {number} positions",
            where=view.place("sequence"),
            number=positions,
            observed=view.listed("sequence", "positions"),
            expected=filled("--max-position-embeddings of at least {0}", sequence),
        )


def _values(view: View) -> Iterator[Finding]:
    """Each value is of its option's kind: a size, a number, one of some words."""
    if not (kinds := value_kinds(view.framework)):
        raise NotGiven("values")
    for name, kind in kinds.items():
        setting = _decided(view, name)
        if setting and (expected := expected_value(kind, setting)):
            yield Finding(
                "the value at {where} is none that {option} takes",
                where=setting.where,
                option=setting.option,
                observed=str(setting),
                expected=expected,
            )


def _decided(view: View, name: str) -> Setting | None:
    """None also for what is not decided: the rules that compare it say so."""
    try:
        return view.decided(name) if view.has(name) else None
    except NotDecided:
        return None


def _rates(view: View) -> Iterator[Finding]:
    """Megatron-LM's scheduler asserts that the least learning rate is not above the other."""
    rate, least = (_decided(view, name) for name in ("learning_rate", "least_rate"))
    numbers = [rated.value for rated in (rate, least) if rated and isinstance(rated.value, int | float)]
    if view.framework != "megatron" or not least or len(numbers) < 2:
        raise NotGiven("least_rate")
    if numbers[1] > numbers[0]:
        yield Finding(
            "the least learning rate at {where} is above the learning rate",
            where=least.where,
            observed=view.listed("least_rate", "learning_rate"),
            expected=filled("at most {0}", numbers[0]),
        )


def _refused(view: View, pairs: Sequence[tuple[bool, tuple[str, ...], str]]) -> Iterator[dict[str, str]]:
    """Of each combination that its program refuses: where it stands, what it is, and what is expected."""
    for refused, names, expected in pairs:
        if refused:
            yield {
                "where": view.place(*names),
                "observed": view.listed(*names) or "the defaults",
                "expected": expected,
            }


def _internevo(view: View) -> Iterator[Finding]:
    """The assertions of InternEvo's launch on its parallel section."""
    if view.framework != "internevo":
        raise NotGiven("tensor_mode")
    mode = view.text("tensor_mode") or "mtp"
    pairs = [
        (mode != "isp" and view.number("weight", 1) > 1, ("tensor_mode", "weight"), 'mode "isp", or a weight of 1'),
        (view.flag("fsdp") and mode == "isp", ("tensor_mode", "fsdp"), "FSDP or isp, not both"),
        (view.flag("fsdp") and view.number("pipeline", 1) > 1, ("pipeline", "fsdp"), "FSDP or a pipeline, not both"),
        (
            view.number("virtual_stages", 1) > 1 and not view.flag("overlap"),
            ("virtual_stages", "overlap"),
            "interleaved_overlap=True",
        ),
    ]
    for values in _refused(view, pairs):
        yield Finding("InternEvo refuses the parallel settings at {where}", **values)


def _two_shardings(view: View) -> Iterator[Finding]:
    """Transformers' Trainer, and axolotl with it."""
    if view.framework not in ("axolotl", "transformers"):
        raise NotGiven("fsdp")
    if view.has("deepspeed") and view.has("fsdp") and view.text("fsdp") not in ("", "False", "false"):
        yield Finding(
            "{where} asks for DeepSpeed and FSDP",
            where=view.place("deepspeed"),
            observed=view.listed("deepspeed", "fsdp"),
            expected="one of them",
        )


def _llama_factory(view: View) -> Iterator[Finding]:
    """What the trainer of LLaMA-Factory v1 refuses of context parallelism, and of DeepSpeed."""
    if view.framework != "llamafactory":
        raise NotGiven("backend")
    is_deepspeed = view.text("backend") == "deepspeed"
    if is_deepspeed and not view.has("deepspeed"):
        yield Finding(
            "{where} asks for DeepSpeed without its configuration",
            where=view.place("backend"),
            observed=view.listed("backend"),
            expected="config_file in dist_config",
        )
    if view.number("context", 1) < 2:
        return
    pairs = [
        (is_deepspeed, ("backend", "context"), "fsdp2 with context parallelism"),
        (view.text("context_mode") not in ("", "ulysses"), ("context_mode", "context"), "cp_mode: ulysses"),
        (
            view.text("attention") not in ("", "flash_attention_2"),
            ("attention", "context"),
            "flash_attn: flash_attention_2",
        ),
    ]
    for values in _refused(view, pairs):
        yield Finding("LLaMA-Factory refuses the context parallelism at {where}", **values)


def _quantized(view: View) -> Iterator[Finding]:
    """LLaMA-Factory trains adapters of a quantized model alone, and needs max_steps for a stream."""
    if view.framework != "transformers" or not view.has("finetuning"):
        raise NotGiven("finetuning")
    if view.has("quantization") and view.text("finetuning") not in ("lora", "oft"):
        yield Finding(
            "{where} trains a quantized model without adapters",
            where=view.place("quantization"),
            observed=view.listed("quantization", "finetuning"),
            expected="finetuning_type lora or oft",
        )
    if view.flag("streaming") and not view.has("max_steps"):
        yield Finding(
            "{where} reads its data as a stream, and max_steps is not given",
            where=view.place("streaming"),
            observed=view.listed("streaming"),
            expected="max_steps",
        )


def _file(view: View) -> Iterator[Finding]:
    """A configuration that the launch line names and that cannot be read here is not decided."""
    if view.framework != "unreadable":
        raise NotGiven("file")
    view.need("file")
    yield from ()


def _queues(view: View, switch: str) -> tuple[bool, tuple[str, ...], str]:
    return view.text(CUDA_QUEUES) == "1", (CUDA_QUEUES, switch), "unset, or more than 1"


def _torch_fsdp(view: View) -> Iterator[Finding]:
    """What Megatron-LM refuses beside FSDP2 of PyTorch."""
    if view.framework != "megatron" or not view.flag("fsdp2"):
        raise NotGiven("fsdp2")
    named = view.text("checkpoint_format")
    pairs = [
        (view.number("pipeline", 1) > 1, ("pipeline", "fsdp2"), "no pipeline"),
        (view.number("expert", 1) > 1, ("expert", "fsdp2"), "no expert parallelism"),
        (view.flag("distributed_optimizer"), ("distributed_optimizer", "fsdp2"), "no --use-distributed-optimizer"),
        (view.flag("fp16"), ("fp16", "fsdp2"), "bf16 or float32"),
        (named not in ("", "torch_dist", "torch_dcp"), ("checkpoint_format", "fsdp2"), "torch_dist or torch_dcp"),
        _queues(view, "fsdp2"),
    ]
    for values in _refused(view, pairs):
        yield Finding("Megatron-LM refuses FSDP with the settings at {where}", **values)


def _megatron_fsdp(view: View) -> Iterator[Finding]:
    """What Megatron-LM refuses beside its own FSDP."""
    if view.framework != "megatron" or not view.flag("megatron_fsdp"):
        raise NotGiven("megatron_fsdp")
    is_other = view.text("checkpoint_format") != "fsdp_dtensor"
    pairs = [
        (is_other, ("checkpoint_format", "megatron_fsdp"), "--ckpt-format fsdp_dtensor"),
        _queues(view, "megatron_fsdp"),
    ]
    for values in _refused(view, pairs):
        yield Finding("Megatron-LM refuses FSDP with the settings at {where}", **values)
