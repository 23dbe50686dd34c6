"""Digests of a training program's own values, which ``doctor watch`` compares over all ranks.

Call it where ranks must agree, or must not::

    from doctor import probe  # or, where doctor is not installed: doctor probe --print > probe.py

    probe.same("mask", mask, tp_group)  # equal on the ranks of the group
    probe.different("dropout", keep, dp_group)  # different on each of them
    probe.shard(indices)  # no sample is read by two ranks
    probe.params(model)
    probe.gradients(model)
    probe.loss(step, loss)
    probe.heartbeat()

Each call appends one line of JSON to a file of its process, in the folder that the environment variable
``DOCTOR_WATCH_PROBES`` names; ``doctor watch`` sets it. Without it every call returns at once. No call communicates,
draws a random number, changes a tensor, or raises. Inside a compiled function (``torch.compile``) a call does nothing,
and breaks no graph: call it outside. A device's tensor is digested on the device; its digest is copied without waiting
for it, and written by a later call.

One file, Python 3.8 and later, torch 2.1 and later; torch need not be there. Apache-2.0.
"""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable

from doctor.watch.hook.channel import Channel, channel
from doctor.watch.hook.digest import encode_indices, finite_or_text, local_tensor
from doctor.watch.hook.digest_records import MAX_TENSORS, emit, emit_tensors

try:
    import torch
except Exception:  # a broken torch is no matter of doctor: what needs none still works
    torch = None

__all__ = ["different", "gradients", "heartbeat", "loss", "params", "same", "shard"]


def _never() -> bool:
    return False


def _compile_test() -> Callable[[], bool]:
    """What says that the caller is being compiled; torch has moved it twice."""
    for module, name in (("compiler", "is_compiling"), ("_dynamo", "is_compiling")):
        test = getattr(getattr(torch, module, None), name, None)
        if test:
            return test  # type: ignore[no-any-return]
    return _never


_compiling = _compile_test() if torch else _never


def _guarded(call: Callable[..., None], *arguments: Any) -> None:
    out = None
    try:
        out = channel()
        if out is not None and out.file >= 0:
            if out.pending:
                out.drain()
            call(out, *arguments)
    except Exception:
        try:
            if out is not None:
                out.failed(call.__name__.strip("_"))
        except Exception:
            return


# What a program calls


def same(name: str, tensor: Any, group: Any = None) -> None:
    """The value is equal, bit for bit, on all ranks of the group.

    ``tensor``: a tensor on any device, an array, text, or numbers. ``group``: a process group, a one-dimensional
    DeviceMesh or a list of global ranks; None for all ranks. The n-th call with a name is compared with the n-th call
    on the other ranks. Raises nothing. Example: ``probe.same("mask", mask, tp_group)``.
    """
    if not _compiling():
        _guarded(_compared, "same", name, tensor, group)


def different(name: str, tensor: Any, group: Any = None) -> None:
    """No two ranks of the group have the same value: masks of different data, dropout of data-parallel ranks.

    Arguments as for `same`. Raises nothing. Example: ``probe.different("dropout", keep, dp_group)``.
    """
    if not _compiling():
        _guarded(_compared, "different", name, tensor, group)


def _compared(out: Channel, kind: str, name: str, tensor: Any, group: Any) -> None:
    number = out.group(group)
    name = str(name)[:80]
    emit(out, kind, tensor, n=name, g=number, i=out.number(kind, name, number))


def shard(indices: Iterable[int], group: Any = None, total: int | None = None) -> None:
    """The samples that this rank reads: no two ranks of the group read one of them in the same call.

    ``indices``: of one batch or of one epoch. ``group``: the data-parallel group; None for all ranks. ``total``: how
    many samples the ranks read together in this call; all of 0 to ``total`` - 1 must then be read. Raises nothing.
    Example: ``probe.shard(list(sampler), dp_group, total=len(dataset))``.
    """
    if not _compiling():
        _guarded(_shard, indices, group, total)


def _shard(out: Channel, indices: Iterable[int], group: Any, total: int | None) -> None:
    values = indices.tolist() if hasattr(indices, "tolist") else indices
    number = out.group(group)
    fields = encode_indices([int(index) for index in values])
    out.write("shard", g=number, i=out.number("shard", number), total=-1 if total is None else int(total), **fields)


def params(model: Any, group: Any = None) -> None:
    """The model's parameters and buffers are equal on all ranks of the group, by name.

    ``group``: the data-parallel group; None for all ranks. Digests every tensor in full: costs about the reading of
    the model's memory twice. Raises nothing. Example: ``probe.params(model)`` after every hundredth step.
    """
    if not _compiling():
        _guarded(_named, "params", model, group)


def gradients(model: Any, group: Any = None) -> None:
    """The model's reduced gradients are equal on all ranks of the group, and finite.

    Call it between ``backward`` and ``optimizer.step``. Arguments and cost as for `params`. Raises nothing.
    """
    if not _compiling():
        _guarded(_named, "gradients", model, group)


def _named(out: Channel, kind: str, model: Any, group: Any) -> None:
    tensors = itertools.islice(model.named_parameters(), MAX_TENSORS)
    if kind == "gradients":
        named = [(name, tensor.grad) for name, tensor in tensors if tensor.grad is not None]
    else:
        named = list(tensors)
    number = out.group(group)
    values = {"g": number, "i": out.number(kind, number)}
    emit_tensors(out, kind, named, **values)


def loss(step: int, value: Any) -> None:
    """The loss of one step: a number, or a tensor of one element. Raises nothing.

    Example: ``probe.loss(step, loss)``. A loss on a device is read without waiting for it.
    """
    if not _compiling():
        _guarded(_loss, step, value)


def _loss(out: Channel, step: int, value: Any) -> None:
    step = int(step)
    if torch is not None and isinstance(value, torch.Tensor):
        value = local_tensor(value).detach()
        if value.device.type != "cpu":
            value = value.double() if value.device.type == "cuda" else value.float()
            out.later(value.reshape(1), lambda got: out.write("loss", s=step, v=finite_or_text(got[0])))
            return
    out.write("loss", s=step, v=finite_or_text(value))


def heartbeat() -> None:
    """This rank is at work, although it neither steps nor communicates: a long evaluation, a checkpoint."""
    if not _compiling():
        _guarded(lambda out: out.write("heartbeat"))
