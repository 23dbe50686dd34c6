"""Which module makes the first NaN out of numbers: looked at in the forward pass. Python 3.8, torch 2.1.

A part of the hook. Infinities are not looked for: masks of attention are made of them.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from itertools import islice
from typing import Any, Callable, Iterator

MAX_MODULES = 2048


def tensors_in(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The tensors in arguments or results, by path: in lists, tuples, mappings and dataclasses, four levels deep."""
    if hasattr(value, "untyped_storage"):
        yield path, value
    elif depth < 4:
        if isinstance(value, dict) or (hasattr(value, "items") and hasattr(value, "keys")):
            items = [(str(key), value[key]) for key in list(value)[:64]]
        elif isinstance(value, (list, tuple)):
            items = [(str(number), element) for number, element in enumerate(value[:64])]
        elif hasattr(value, "__dataclass_fields__"):
            items = [(name, getattr(value, name, None)) for name in list(value.__dataclass_fields__)[:64]]
        else:
            return
        for name, element in items:
            yield from tensors_in(element, f"{path}.{name}"[-80:] if path else name[:80], depth + 1)


def input_tensors(arguments: Any, named: Any, most: int) -> list[tuple[str, Any]]:
    """The first tensors in the arguments of a call, by path."""
    return list(islice(tensors_in({**{str(n): value for n, value in enumerate(arguments)}, **named}), most))


def in_training(module: Any) -> bool:
    """Whether a module or one below it is: a wrapper may be left as it was for an evaluation (Lightning 2.6)."""
    return module.training or any(child.training for child in module.modules())


def is_compiled(module: Any) -> bool:
    """Whether torch.compile or torch.jit makes other code of it, that hooks see nothing of."""
    return takes_no_hooks(module) or hasattr(module, "_orig_mod") or bool(getattr(module, "_compiled_call_impl", None))


def takes_no_hooks(module: Any) -> bool:
    """Whether torch.jit has scripted or traced it: registering a hook raises there."""
    return isinstance(module, importlib.import_module("torch.jit").ScriptModule)


class HiddenHooks(OrderedDict):  # type: ignore[type-arg]
    """A module's hooks; a copy or a file of the module has none of ours."""

    def __reduce__(self) -> Any:
        return OrderedDict, ([(key, hook) for key, hook in self.items() if not hasattr(hook, "of_doctor")],)


class ModuleValues:
    """Hooks on all modules below one, during one forward pass."""

    def __init__(self, torch: Any, root: Any) -> None:
        self.torch = torch
        self.flags: list[tuple[str, Any]] = []
        self.first: tuple[str, str] | None = None
        self.count = 0
        self.handles = []
        for number, (name, module) in enumerate(root.named_modules()):
            if number and number < MAX_MODULES:
                self.handles.append(module.register_forward_hook(self._look(name)))

    def _look(self, name: str) -> Any:
        def look(module: Any, arguments: Any, result: Any) -> None:
            try:
                self.count += self.first is None
                if self.first is None and self._nan(name, result):
                    self.first = (name, "input" if self._nan("", arguments) else "output")
            except Exception:
                return

        return look

    def _nan(self, name: str, value: Any) -> bool:
        """Whether there is a NaN, in host memory; on a device its answer is kept in ``flags``, under this name."""
        for _, tensor in tensors_in(value):
            if type(tensor).__torch_dispatch__ is not self.torch.Tensor.__torch_dispatch__:
                continue
            if tensor.is_floating_point() and tensor.element_size() > 1 and tensor.device.type != "meta":
                flag = self.torch.isnan(tensor.detach()).any()
                if tensor.device.type != "cpu":
                    if len(self.flags) < MAX_MODULES:
                        self.flags.append((name, flag))
                elif flag:
                    return True
        return False

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles = []


def compile_test(torch: Any) -> Callable[[], bool]:
    """A function that says whether the caller is being compiled."""
    for owner in (getattr(torch, "compiler", None), getattr(torch, "_dynamo", None)):
        if hasattr(owner, "is_compiling"):
            return owner.is_compiling  # type: ignore[no-any-return]
    return lambda: False
