"""Records of one step: the tensors of a model in whole and in shards, numbers, random generators.

Python 3.8, torch 2.1. A part of the hook.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator

from .channel import Channel
from .digest import finite_or_text
from .digest_records import MAX_TENSORS, emit_tensors
from .shard_holders import ShardHolders


def initial_values(
    optimizers: Iterable[Any], named: list[tuple[str, Any]]
) -> Iterator[tuple[str, list[tuple[str, Any, Any]]]]:
    """Before the first update, the kinds of records and of each its values: name, parameter that it belongs to, value.

    The kinds here and in `updated_values` are those of ``ALIKE`` in ``doctor/watch/data/value_rules.py``.
    """
    yield "begun", [(name, tensor, tensor) for name, tensor in named]
    yield "held", kept_states(optimizers, named)


def updated_values(
    optimizers: Iterable[Any], named: list[tuple[str, Any]]
) -> Iterator[tuple[str, list[tuple[str, Any, Any]]]]:
    """The same after each digested update."""
    yield "parameters", [(name, tensor, tensor) for name, tensor in named]
    yield "states", kept_states(optimizers, named)


def emit_entries(
    out: Channel, holders: ShardHolders, kind: str, entries: Iterable[tuple[str, Any, Any]], step: int
) -> None:
    """Digests of values by name, each with its parameter: of whole parameters one record, of shards another.

    Before the first update, also the names of those that no wrapper reduces (``loose``).
    """
    unsharded, shards, of, loose = [], [], {}, []
    for name, tensor, value in entries:
        ranks = holders.of(tensor)
        if kind == "begun" and holders.is_loose(tensor):
            loose.append(name[:120])
        if ranks == ():
            unsharded.append((name, value))
        elif ranks:
            shards.append((name, value))
            of[name[:120]] = out.group(ranks)
    emit_tensors(out, kind, unsharded, s=step, **({"loose": loose} if loose else {}))
    if shards:
        emit_tensors(out, kind + " shards", shards, s=step, of=of)


def kept_states(optimizers: Iterable[Any], named: Iterable[tuple[str, Any]]) -> list[tuple[str, Any, Any]]:
    """What optimizers keep of each parameter, such as its momentum, with the parameter."""
    optimizers, kept = list(optimizers), []
    for name, tensor in named:
        for optimizer in optimizers:
            for key, value in sorted((optimizer.state.get(tensor) or {}).items()):
                if hasattr(value, "untyped_storage") and len(kept) < MAX_TENSORS:
                    kept.append((f"{key} of {name}", tensor, value))
    return kept


def write_numbers(torch: Any, out: Channel, kind: str, numbers: list[Any], **values: Any) -> None:
    """One record of numbers, each a tensor of one element; those of a device once they have come from it."""

    def use(got: list[Any]) -> None:
        out.write(kind, v=[finite_or_text(number) for number in got], **values)

    if numbers and numbers[0].device.type != "cpu":
        wide = torch.float64 if numbers[0].device.type == "cuda" else torch.float32
        out.later(torch.stack([number.reshape(()).to(wide) for number in numbers]), use)
    elif numbers:
        use(numbers)


def holds_gradients(optimizer: Any) -> bool:
    """Whether the optimizer's first tensors hold gradients already, as before a step's first backward pass none do."""
    held = [tensor.grad for group in optimizer.param_groups for tensor in group["params"][:4]][:4]
    return any(gradient is not None and bool(gradient.any()) for gradient in held)


def fills_states(optimizer: Any) -> bool:
    """Whether a step before the first forward pass is none of the training.

    torch.distributed.checkpoint makes the states of a new optimizer by one at rate 0 with gradients of zeros (torch
    2.13, distributed/checkpoint/state_dict.py, ``_init_optim_state``).
    """
    groups = optimizer.param_groups
    if any(group.get("lr") is None or float(group["lr"]) != 0 for group in groups):
        return False
    gradients = [parameter.grad for group in groups for parameter in group["params"] if parameter.grad is not None]
    # Of a DTensor the own shard: the whole would be communication.
    return not any(bool(getattr(gradient, "_local_tensor", gradient).any()) for gradient in gradients)
