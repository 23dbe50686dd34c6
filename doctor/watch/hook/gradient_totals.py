"""Whether gradients in shards are the mean of the ranks' own, or their sum: totals over all elements.

A total over all elements of all parameters is the same however tensors are flattened, divided and padded. So the total
of what the backward passes give, over all ranks, is compared with that of what optimizers get: no wrapper's buffers
need be known. Python 3.8, torch 2.1. A part of the hook.
"""

from __future__ import annotations

import weakref
from typing import Any, Iterator

from .digest import local_tensor
from .shard_holders import is_flat


class GradientTotals:
    """Of one step: hooks on the tensors that modules use as parameters add up what the backward passes give."""

    def __init__(self, torch: Any, root: Any) -> None:
        self.torch = torch
        self.total: Any = None
        self.unclear = False
        """Whether a gradient is not all of what this rank has computed of it."""
        self.watched: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}
        self.handles = [module.register_forward_pre_hook(self._enter) for module in root.modules()]

    def _enter(self, module: Any, arguments: Any) -> None:
        try:
            if self.torch.is_grad_enabled():
                for tensor in _used_parameters(module):
                    self._watch(tensor)
        except Exception:  # no total is worth a program's end
            self.unclear = True

    def _watch(self, tensor: Any) -> None:
        registered = self.watched.get(id(tensor))
        if not tensor.requires_grad or (registered is not None and registered() is tensor):
            return
        number = len(self.sizes)
        self.sizes[number] = 0
        self.watched[id(tensor)] = weakref.ref(tensor)

        def add(gradient: Any) -> None:
            try:
                self.unclear |= any(placement.is_partial() for placement in getattr(gradient, "placements", ()))
                local = local_tensor(gradient).detach()
                self.sizes[number] = local.numel()
                value = self._total(local)
                self.total = value if self.total is None else self.total + value
            except Exception:
                self.unclear = True

        self.handles.append(tensor.register_hook(add))

    def _total(self, tensor: Any) -> Any:
        kind = self.torch.float64 if tensor.device.type in ("cpu", "cuda") else self.torch.float32
        with self.torch.no_grad():
            return tensor.sum(dtype=kind)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def values(self, held: list[Any]) -> tuple[list[Any], list[int]] | None:
        """Two totals, of what was computed and of what ``held``'s tensors have as gradients; how many elements both are
        of. None where it is not clear.
        """
        gradients = [local_tensor(tensor.grad).detach() for tensor in held if tensor.grad is not None]
        if self.unclear or self.total is None or not gradients or any(tensor.is_sparse for tensor in gradients):
            return None
        after = self._total(gradients[0])
        for gradient in gradients[1:]:
            after = after + self._total(gradient).to(after.device)
        sizes = [sum(self.sizes.values()), sum(gradient.numel() for gradient in gradients)]
        return [self.total.to(after.device), after], sizes


def _used_parameters(module: Any) -> Iterator[Any]:
    """A module's own parameters, and the plain tensors that FSDP puts in their place for a forward pass.

    Of a flat parameter its pieces are used, which are there as well.
    """
    for table in (module._parameters, module.__dict__):
        for value in list(table.values()):
            if hasattr(value, "untyped_storage") and not is_flat(value):
                yield value
