"""What random masks and noise of the forward pass are put on: digests of both. Python 3.8, torch 2.1.

A part of the hook. Who draws, and by which generator, does not matter: each operator that draws has a tag. A result of
it, and what is computed from it alone, is a mask; where it meets another tensor, both are digested.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from .channel import Channel
from .digest import Unread, hex_word, local_tensor, tensor_digest
from .module_values import tensors_in

MOST_MASKS = 32
"""In one forward pass."""
MEETS = frozenset({"mul", "mul_", "add", "add_", "sub", "sub_", "div", "div_", "where", "masked_fill", "masked_fill_"})
"""Operators by which a mask or noise is put on a tensor."""
DROPOUT = "native_dropout"
NO_MASKS = ("_scaled_dot_product", "_flash", "_efficient", "rnn", "lstm", "gru", "cudnn")
"""Begins of operators whose results are values, although they may draw."""
SEEDING = ("random.seed", "numpy.random.seed", "torch.manual_seed")
"""What seeds a generator that all of a program draws from."""


class MaskDraws(TorchDispatchMode):  # type: ignore[misc]
    """Looks at each operator of one forward pass, and changes none."""

    def __init__(self, out: Channel, step: int, forward: int) -> None:
        super().__init__()
        self.out, self.place, self.count = out, {"s": step, "i": forward}, 0
        self.masks = WeakIdKeyDictionary()

    def leave(self, *, only_among_others: bool = False) -> bool:
        """Ends it, and returns whether it could be: not below another one, nor, where that is asked, alone."""
        modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
        if modes[-1:] != [self] or (only_among_others and len(modes) == 1):
            return False
        self.__exit__(None, None, None)
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operands = [tensor for _, tensor in tensors_in(list(args[:4]))]
        in_mask = [tensor in self.masks for tensor in operands]
        name = func._schema.name.rpartition("::")[2]
        if any(in_mask) and name in MEETS and self.count < MOST_MASKS:
            others = [tensor for tensor, is_mask in zip(operands, in_mask) if not is_mask and tensor.numel() > 1]
            if others:
                self._write(others[0], operands[in_mask.index(True)])
        result = func(*args, **(kwargs or {}))
        draws = torch.Tag.nondeterministic_seeded in func.tags and not name.startswith(NO_MASKS)
        if name == DROPOUT and draws and args[2]:
            self._write(args[0], result[1])
        elif draws or (any(in_mask) and all(m or t.numel() == 1 for t, m in zip(operands, in_mask))):
            for _, tensor in tensors_in(result):
                self.masks[tensor] = True
        return result

    def _write(self, tensor: Any, mask: Any) -> None:
        try:
            digests = [tensor_digest(local_tensor(part)) for part in (tensor, mask)]
        except Unread:
            return
        record = {**self.place, "n": self.count, "sh": list(mask.shape)[:8], "at": _program_line()}
        self.count += 1
        if isinstance(digests[0], str) and isinstance(digests[1], str):
            self.out.write("masked", v=digests[0], m=digests[1], **record)
        elif not isinstance(digests[0], str) and not isinstance(digests[1], str):

            def use(numbers: Any) -> None:
                self.out.write("masked", v=hex_word(numbers[0]), m=hex_word(numbers[1]), **record)

            self.out.later(torch.stack(digests), use)


def begin(out: Channel, step: int, forward: int) -> MaskDraws | None:
    """Looks from here on, until the mode is left. Not where something is compiled: it would be run in another way."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    if counters.get("frames"):
        return None
    draws = MaskDraws(out, step, forward)
    draws.__enter__()
    return draws


def _program_line() -> str:
    """Where the program is: the innermost place that is none of an installed library; empty without one."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "site-packages" not in path and "dist-packages" not in path and frame.f_globals.get("__name__") != __name__:
            return "%s:%d" % (path.rpartition("/")[2][:80], frame.f_lineno)
        frame = frame.f_back
    return ""


def note_seeds(note: Callable[[str, Any], Any]) -> None:
    """Calls ``note`` with the name of each call that seeds a generator, and the seed."""
    for name in SEEDING:
        module, _, attribute = name.rpartition(".")
        if original := getattr(sys.modules.get(module), attribute, None):
            setattr(sys.modules[module], attribute, _noted(original, name, note))


def _noted(original: Any, name: str, note: Callable[[str, Any], Any]) -> Any:
    @functools.wraps(original)
    def seed(*arguments: Any, **named: Any) -> Any:
        note(name, next(iter((*arguments, *named.values())), None))
        return original(*arguments, **named)

    return seed
