"""Records of digests: of one value, and of the tensors of a model by name. Python 3.8, torch 2.1.

A part of `doctor.watch.probe` and of the hook.
"""

from __future__ import annotations

from typing import Any

from .channel import Channel
from .digest import Unread, hex_word, local_tensor, shape_of, tensor_digest, value_digest

try:
    import torch
except Exception:  # a broken torch is no matter of doctor: what needs none still works
    torch = None

MAX_TENSORS = 4096
"""Tensors of a model that are digested by name."""
WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.", "module.")


def plain_name(name: str) -> str:
    """A parameter's name without what wrappers put into it.

    >>> plain_name("module._orig_mod.layer.weight")
    'layer.weight'
    """
    for wrapper in WRAPPERS:
        if wrapper == "module.":
            name = name[len(wrapper) :] if name.startswith(wrapper) else name
        else:
            name = name.replace(wrapper, "")
    return name[:120]


def emit(out: Channel, kind: str, value: Any, **values: Any) -> None:
    """One record with the digest of one value, now or once its device has made it."""
    values["sh"], values["dt"] = shape_of(value), str(getattr(value, "dtype", type(value).__name__))[:40]
    capturing = getattr(getattr(torch, "cuda", None), "is_current_stream_capturing", None)
    try:
        if getattr(value, "is_cuda", False) and capturing and capturing():
            raise Unread("captured graph")
        digest = value_digest(value)
    except Unread as error:
        out.write(kind, d=None, why=str(error)[:60], **values)
        return
    if isinstance(digest, str):
        out.write(kind, d=digest, **values)
    else:
        out.later(digest.reshape(1), lambda digest_words: out.write(kind, d=hex_word(digest_words[0]), **values))


def emit_tensors(out: Channel, kind: str, named: list[tuple[str, Any]], **values: Any) -> None:
    """One record of the digests of these tensors by name, and of the names whose values are not all finite."""
    digests: dict[str, str | None] = {}
    waiting: list[tuple[str, Any]] = []
    flags: list[tuple[str, Any]] = []
    for name, tensor in named:
        name = name[:120]
        try:
            local = local_tensor(tensor)
            digest = tensor_digest(local)
        except Unread:
            digests[name] = None
            continue
        if isinstance(digest, str):
            digests[name] = digest
        else:
            digests[name] = None
            waiting.append((name, digest))
        if local.is_floating_point() and local.element_size() > 1:
            flags.append((name, torch.isfinite(local.detach()).all()))
    if not waiting:
        bad = [name for name, finite in flags if not finite]
        out.write(kind, t=digests, bad=bad[:16], **values)
        return
    device = waiting[0][1].device
    numbers = [digest.to(device) for _, digest in waiting] + [flag.to(device).to(torch.int64) for _, flag in flags]

    def use(digest_words: list[int]) -> None:
        digests.update({name: hex_word(word) for (name, _), word in zip(waiting, digest_words)})
        bad = [name for (name, _), finite in zip(flags, digest_words[len(waiting) :]) if not finite]
        out.write(kind, t=digests, bad=bad[:16], **values)

    out.later(torch.stack(numbers), use)
