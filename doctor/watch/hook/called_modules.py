"""Which modules the program calls: of optimizers and wrappers, those in no other one. Python 3.8, torch 2.1.

Their inputs are the batch. A part of the hook.
"""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any, Iterable, Iterator

from .channel import Channel
from .digest_records import MAX_TENSORS, plain_name
from .module_values import HiddenHooks, is_compiled, takes_no_hooks

MAX_ROOTS = 8
"""Of an optimizer."""


class CalledModules:
    """Of this process, with the hooks at them. ``collector``: learns of each call, by ``enter`` and ``leave``."""

    def __init__(self, torch: Any, out: Channel, collector: Any) -> None:
        self.torch, self.out, self.collector = torch, out, collector
        self.by_id: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """All modules of the program, by their ids: not each has a hash."""
        self.is_searched = False
        self.roots: dict[int, tuple[Any, list[Any]]] = {}

    def install(self) -> None:
        """From here on each module is known that is made, copied or loaded."""
        kind = self.torch.nn.Module
        for name in ("__init__", "__setstate__"):
            setattr(kind, name, self._noting(getattr(kind, name)))

    def _noting(self, original: Any) -> Any:
        modules = self.by_id

        @functools.wraps(original)
        def method(module: Any, /, *arguments: Any, **named: Any) -> None:
            original(module, *arguments, **named)
            modules[id(module)] = module

        return method

    def add_of(self, held: dict[int, Any]) -> None:
        """Those with tensors that an optimizer steps. ``held``: these, by their ids."""
        tops, holders = self._tops(held)
        if not (holders or self.is_searched):  # they may have been made before
            self.is_searched = True
            kind = self.torch.nn.Module
            self.by_id.update({id(each): each for each in gc.get_objects() if issubclass(type(each), kind)})
            tops, holders = self._tops(held)
        for module in tops[:MAX_ROOTS]:
            self.add(module)

    def _tops(self, held: dict[int, Any]) -> tuple[list[Any], bool]:
        """Those that are in no other module, and whether each of the tensors is in one of them."""
        modules = [module for module in list(self.by_id.values()) if "_modules" in module.__dict__]
        below = {id(child) for module in modules for child in module.__dict__["_modules"].values()}
        tensors_of = self.torch.nn.Module.parameters
        outer = (module for module in modules if id(module) not in below)
        tops = [(module, {*map(id, tensors_of(module))} & held.keys()) for module in outer]
        return [module for module, ids in tops if ids], held.keys() == {key for _, ids in tops for key in ids}

    def add(self, module: Any) -> None:
        """The module is one that the program calls: its inputs are the batch. Those below it are not."""
        compiled = {id(module), id(getattr(module, "_orig_mod", module))}  # module.compile() has no other module in it
        below = compiled if is_compiled(module) else {id(child) for child in module.modules()}
        if below == {id(module)} and is_compiled(module):  # its hooks are compiled as well, and see no call
            self.out.write("note", text="compiled", n=type(module).__name__[:60])
        others = (root for root in self.modules() if root is not module)
        if takes_no_hooks(module) or any(id(module) in {id(child) for child in root.modules()} for root in others):
            return
        self._remove(key for key, (reference, _) in self.roots.items() if reference() is None or key in below)
        handles = []
        for name in ("_forward_pre_hooks", "_forward_hooks"):
            if not module.__dict__[name]:
                module.__dict__[name] = HiddenHooks()

        def enter(module: Any, arguments: Any, named: Any) -> None:
            if not self.collector.compiling():
                self.collector.guard(self.collector.enter, module, arguments, named)

        def leave(module: Any, arguments: Any, result: Any) -> None:
            if not self.collector.compiling():
                self.collector.guard(self.collector.leave, module, result)

        enter.of_doctor = leave.of_doctor = True  # type: ignore[attr-defined]
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        marks = self.collector.marks
        handles += marks.hooks_before_gathers(module) if marks else []
        handles.append(module.register_forward_hook(leave, always_call=True))
        self.roots[id(module)] = weakref.ref(module), handles

    def _remove(self, keys: Iterable[int]) -> None:
        for key in list(keys):
            for handle in self.roots.pop(key)[1]:
                handle.remove()

    def keep_only(self, model: Any) -> set[int]:
        """Lets go of the modules that have no parameter of this one. Returns the ids of their parameters."""
        kept = {id(tensor) for tensor in model.parameters()}
        dropped = {id(root): {id(tensor) for tensor in root.parameters()} for root in self.modules()}
        dropped = {key: ids for key, ids in dropped.items() if not ids & kept}
        self._remove(dropped)
        return set().union(*dropped.values())

    def modules(self) -> list[Any]:
        """The modules that the program calls and that are still there."""
        return [module for reference, _ in self.roots.values() if (module := reference()) is not None]

    def named(self) -> Iterator[tuple[str, Any]]:
        """The parameters of all of them, without what a wrapper puts before their names."""
        count = 0
        for number, root in enumerate(self.modules()):
            for name, tensor in root.named_parameters():
                count += 1
                if count > MAX_TENSORS:
                    return
                yield f"{number}:" * bool(number) + plain_name(name), tensor

    def buffers(self) -> list[tuple[str, Any]]:
        """What is saved of them beside the parameters, named as those are."""
        rows = []
        for number, root in enumerate(self.modules()):
            for prefix, module in root.named_modules():
                for name, tensor in module._buffers.items():
                    if tensor is not None and name not in module._non_persistent_buffers_set:
                        path = plain_name(f"{prefix}.{name}" if prefix else name)
                        rows.append((f"{number}:" * bool(number) + path, tensor))
        return rows[:MAX_TENSORS]
