from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import NotGiven, Rule, TrainingLaunch, View, apply_rules


@check(severity=ERROR, area="training")
def launch_model_not_divisible(training: TrainingLaunch) -> Iterator[Finding]:
    """Heads, hidden size, layers, sequence and experts can be divided among the parallel groups.

    ## Why it matters
    Tensor parallelism gives each rank whole attention heads, the pipeline whole layers, context and sequence
    parallelism whole parts of the sequence, expert parallelism whole experts. What cannot be divided is refused when
    the model is built, on every rank.

    ## What to do
    {edit} The place with the error: {where} has {observed}, and needs {expected}.

    ## Source
    Megatron-LM transformer_config.py, "num_attention_heads must be a multiple of tensor_model_parallel_size", also for
    num_query_groups and num_moe_experts
    (https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/transformer_config.py), and arguments.py,
    "Number of layers should be divisible by the pipeline-model-parallel size"; MindFormers check_rules.py and
    transformer.py, "num_heads must be a multiple of model_parallel"
    (https://gitee.com/mindspore/mindformers/tree/dev/mindformers/modules/transformer). MindSpeed's --unaligned-linear
    divides heads and sequence unevenly (docs/zh/features/unaligned_linear.md); with --context-parallel-algo
    ulysses_cp_algo it ends with "num_attention_heads must be divisible by context_parallel_size *
    tensor_model_parallel_size".
    """
    yield from apply_rules(
        training,
        _rule("heads", "tensor", "attention heads", "tensor parallel ranks"),
        _groups,
        _rule("hidden", "heads", "hidden size", "attention heads"),
        _layers,
        _virtual_layers,
        _sequence,
        _context,
        _ulysses,
        _rule("experts", "expert", "experts", "expert parallel ranks"),
        frameworks=("megatron", "nemo", "mindformers"),
    )


def _divides(view: View, name: str, divisor: str, noun: str, parts: str, factor: int = 1) -> Iterator[Finding]:
    whole, number = view.number(name), view.number(divisor) * factor
    if whole % number and divisor == "tensor" and view.flag("unaligned"):
        raise NotGiven(name)  # MindSpeed gives the first ranks one more
    if whole % number:
        yield Finding(
            "the {noun} at {where} cannot be divided by {number} {parts}",
            where=view.place(name),
            noun=noun,
            number=number,
            parts=parts,
            observed=view.listed(name, divisor),
            expected=filled("a multiple of {0}", number),
            edit=_smaller(view, divisor, whole // factor if whole % factor == 0 else 1),
        )


def _smaller(view: View, name: str, total: int) -> str:
    """The change of a setting to the largest smaller number that divides ``total``; empty for no parallel size."""
    if name not in PARALLEL:
        return ""
    size = next(size for size in range(min(view.number(name), total), 0, -1) if total % size == 0)
    return filled("Make the parallel size smaller: {0}.", view.edit(name, size))


PARALLEL = frozenset(("tensor", "pipeline", "context", "expert"))


def _rule(name: str, divisor: str, noun: str, parts: str) -> Rule:
    def rule(view: View) -> Iterator[Finding]:
        if name == "hidden" and (view.has("head_size") or view.flag("latent")):
            raise NotGiven("hidden")  # a head has its own size, which need not be hidden / heads
        yield from _divides(view, name, divisor, noun, parts)

    return rule


def _groups(view: View) -> Iterator[Finding]:
    """Megatron-LM ignores the number of groups without its switch."""
    if view.framework == "megatron" and not view.flag("grouped"):
        raise NotGiven("groups")
    if view.number("groups") < view.number("tensor", 1) and view.number("tensor") % view.number("groups") == 0:
        raise NotGiven("groups")  # later versions repeat them
    yield from _divides(view, "groups", "tensor", "query groups", "tensor parallel ranks")


def _layers(view: View) -> Iterator[Finding]:
    if view.has("uneven_layers", "extra_layers"):
        raise NotGiven("layers")
    if view.framework == "mindformers":
        # Stages may have different numbers of layers there, but none may have no layer.
        if view.number("layers") < view.number("pipeline", 1):
            yield Finding(
                "the {noun} at {where} are fewer than {number} {parts}",
                where=view.place("layers"),
                noun="layers",
                number=view.number("pipeline"),
                parts="pipeline stages",
                observed=view.listed("layers", "pipeline"),
                expected="at least one layer for each stage",
            )
        return
    yield from _divides(view, "layers", "pipeline", "layers", "pipeline stages")


def _virtual_layers(view: View) -> Iterator[Finding]:
    if view.has("uneven_layers", "extra_layers"):
        raise NotGiven("layers")
    layers, stages = view.number("layers"), view.number("pipeline", 1)
    if layers % stages:
        return
    each = layers // stages
    if view.has("virtual_layers"):
        number, name = view.number("virtual_layers"), "virtual_layers"
    else:
        number, name = view.number("virtual_stages"), "virtual_stages"
    if each % number:
        yield Finding(
            "the {noun} at {where} cannot be divided by {number} {parts}",
            where=view.place(name),
            noun=filled("{0} layers of a stage", each),
            number=number,
            parts="of the interleaved schedule",
            observed=view.listed("layers", "pipeline", name),
            expected=filled("a divisor of {0}", each),
        )


def _sequence(view: View) -> Iterator[Finding]:
    if not view.flag("sequence_parallel"):
        raise NotGiven("sequence_parallel")
    if view.number("context", 1) > 1:
        raise NotGiven("sequence_parallel")
    yield from _divides(view, "sequence", "tensor", "sequence length", "ranks of sequence parallelism")


def _context(view: View) -> Iterator[Finding]:
    """Megatron-LM gives each rank two parts of the sequence, one of each end."""
    if view.framework == "mindformers" or view.has("context_algorithm") or view.number("context") == 1:
        raise NotGiven("context")
    yield from _divides(view, "sequence", "context", "sequence length", "parts of context parallelism", 2)


def _ulysses(view: View) -> Iterator[Finding]:
    """Each rank of the context gets whole heads of its tensor parallel part."""
    is_ulysses = view.has("context_algorithm") and view.text("context_algorithm") == "ulysses_cp_algo"
    if not is_ulysses or view.number("context") == 1:
        raise NotGiven("context")
    parts = "context times tensor parallel ranks"
    yield from _divides(view, "heads", "context", "attention heads", parts, view.number("tensor", 1))
    yield from _divides(view, "sequence", "context", "sequence length", "parts of context parallelism")
