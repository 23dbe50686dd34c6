"""What the program's process groups serve for, as far as their use tells. Python 3.8, torch 2.1.

A part of the hook.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from .channel import Channel
from .shard_holders import device_meshes, fsdp_meshes

MODEL_NAMES = ("tp", "mp", "tensor", "model", "tensor_parallel", "model_parallel", "tensor_model_parallel")
DATA_NAMES = ("dp", "data", "ddp", "data_parallel", "replicate", "dp_replicate", "dp_shard")
MAX_CALLS = 4000
MAX_GROUPS = 64
_MEGATRON = {"_TENSOR_MODEL_PARALLEL_GROUP": "model", "_DATA_PARALLEL_GROUP": "data"}


class GroupUse:
    """Writes each use of each group once: ``data``, ``model``, or what its reductions carry."""

    def __init__(self, torch: Any, out: Channel, collector: Any) -> None:
        self.torch, self.out, self.collector = torch, out, collector
        self.noted: set[tuple[int, str]] = set()
        self.calls = 0
        self.addresses: dict[int, int] = {}
        self.reduced: dict[int, set[int]] = {}
        """By group: where gradients are that the program itself reduces over it."""
        self.operations_on: dict[int, set[str]] = {}
        self.mapped = -1

    def use(self, group: Any, purpose: str, reason: str) -> None:
        """Notes what a group serves for, and how that is known."""
        number = self.out.group(group)
        if (number, purpose) not in self.noted:
            self.noted.add((number, purpose))
            self.out.write("use", g=number, u=purpose, why=reason[:80])

    def calls_so_far(self) -> list[tuple[int, int]]:
        """How many collectives this rank has called, by the numbers of its groups; empty: not recorded."""
        hook, files = _recording()
        calls: dict[int, int] = {}
        for number, ranks in list(hook.KEPT[0].numbered.values())[:MAX_GROUPS] if files else ():
            if number in files.counts:
                group = self.out.group(ranks)
                calls[group] = calls.get(group, 0) + files.counts[number][1]
        return sorted(calls.items())

    def operations(self) -> list[str]:
        """The kinds of collectives that this rank has called; empty: not recorded."""
        return sorted(getattr(_recording()[1], "operations", ()))

    def install(self) -> None:
        """Wraps the reductions where programs find them, and the end of a ``Join``."""
        self._wrap("all_reduce", 0)
        self._wrap("reduce", 1)
        join = getattr(sys.modules.get("torch.distributed.algorithms.join"), "Join", None)
        if join is not None:
            join.__exit__ = self._and_end(join.__exit__)

    def _wrap(self, name: str, place: int) -> None:
        """``place``: of the operation among the arguments behind the tensor; the group follows it."""
        distributed, collector = self.torch.distributed, self.collector
        original = getattr(distributed, name)

        @functools.wraps(original)
        def reduction(tensor: Any, *arguments: Any, **named: Any) -> Any:
            if self.calls < MAX_CALLS and (collector.sampled or not self.noted) and not collector.compiling():
                self.calls += 1
                by_place = dict(zip(("op", "group"), arguments[place:]), **named)
                operation, group = str(by_place.get("op", "SUM")), by_place.get("group")
                collector.guard(self._reduced, name, tensor, operation, group)
            return original(tensor, *arguments, **named)

        setattr(distributed, name, reduction)
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if getattr(c10d, name, None) is original:
            setattr(c10d, name, reduction)

    def _and_end(self, leave: Any) -> Any:
        """Behind a ``Join`` ranks have taken unlike numbers of steps: no step of one is that of another any more."""

        @functools.wraps(leave)
        def exit_(*arguments: Any) -> Any:
            if self.collector.sampled or self.collector.every:
                self.out.write("note", text="joined")
            self.collector.first = self.collector.every = 0
            return leave(*arguments)

        return exit_

    def _reduced(self, name: str, tensor: Any, operation: str, group: Any) -> None:
        collector = self.collector
        group = group if group is not None else self.torch.distributed.group.WORLD
        if not tensor.is_floating_point():
            return
        if collector.depth or collector.rows:
            if tensor.dim() > 1 and "SUM" in operation and name == "all_reduce":
                if self._is_of_rows(tensor):
                    self.use(group, "rows", "all_reduce of a batch's activations in the forward pass")
                elif collector.depth:
                    self.use(group, "activations", "all_reduce of activations in the forward pass")
            return
        if self.mapped != collector.step:
            self.mapped = collector.step
            gradients = [tensor.grad for _, tensor in collector.called.named() if tensor.grad is not None]
            self.addresses = {gradient.data_ptr(): gradient.numel() for gradient in gradients}
        alone = tensor.data_ptr() in self.addresses
        if alone and collector.step and not self.noted:
            models = collector.called.modules()
            collector.begin_together(next(each for each in models if _holds_gradient(each, tensor)))
        if alone or tensor.numel() == sum(self.addresses.values()) > 0:
            self.use(group, "gradients", name + " of gradients")
            number = self.out.group(group)
            self.operations_on.setdefault(number, set()).add(operation.rpartition(".")[2])
            places = self.reduced.setdefault(number, set())
            places |= {tensor.data_ptr()} if alone else self.addresses.keys()

    def _is_of_rows(self, tensor: Any) -> bool:
        """Whether it has a line for each row of the step's batch, and the form of no parameter."""
        shapes = {parameter.shape for _, parameter in self.collector.called.named()}
        return tensor.shape[0] == self.collector.rows > 2 and tensor.shape not in shapes

    def write_left_out(self, named: list[tuple[str, Any]]) -> None:
        """Of each group over which the program reduces gradients: how, and the parameters that it leaves out."""
        for number, places in self.reduced.items():
            unreduced = [name for name, tensor in named if tensor.grad is None or tensor.grad.data_ptr() not in places]
            self.out.write("left", g=number, n=unreduced[:MAX_CALLS], op=sorted(self.operations_on[number]))

    def sharded(self, module: Any) -> bool:
        """Whether parameters are in shards that a wrapper gathers: their gradients are not what a rank computed."""
        return any(hasattr(tensor, "_local_tensor") for tensor in module.parameters()) or any(
            getattr(child, "_handle", None) is not None for child in module.modules()
        )

    def parameters(self, modules: list[Any]) -> None:
        """Uses that parameters, names and Megatron's own state tell; asked after a step."""
        for mesh in device_meshes(modules):
            for dimension, name in enumerate(getattr(mesh, "mesh_dim_names", None) or ()):
                self._named(mesh.get_group(dimension), str(name), "DeviceMesh dimension " + str(name))
        self._sharded_modules(modules)
        state = sys.modules.get("megatron.core.parallel_state")
        for attribute, purpose in _MEGATRON.items():
            group = getattr(state, attribute, None)
            if group is not None:
                self.use(group, purpose, "parallel_state." + attribute)
        # DeepSpeed wraps a model when its optimizer is there already; what it reduces over is its engine's group.
        for module in list(self.collector.called.by_id.values()):
            is_engine = type(module).__name__ == "DeepSpeedEngine"
            if is_engine and (group := getattr(module, "seq_data_parallel_group", None)) is not None:
                self.use(group, "data", "DeepSpeedEngine")
        distributed = self.torch.distributed
        world = getattr(distributed.distributed_c10d, "_world", None)
        for group in list(getattr(world, "pg_map", {}) or {})[:256]:
            description = str(getattr(group, "group_desc", "") or "")
            self._named(group, description, "group description " + description)

    def _sharded_modules(self, modules: list[Any]) -> None:
        for reduced, copies in fsdp_meshes(self.torch, modules):
            if len(reduced) > 1:
                self.use(reduced, "shards", "FSDP")
            if len(copies) > 1:
                self.use(copies, "data", "replicas of FSDP")

    def _named(self, group: Any, name: str, reason: str) -> None:
        word = name.lower().replace("mesh_", "", 1).replace("_group", "")
        if word in MODEL_NAMES:
            self.use(group, "model", reason)
        elif word in DATA_NAMES:
            self.use(group, "data", reason)


def _holds_gradient(model: Any, tensor: Any) -> bool:
    gradients = (parameter.grad for parameter in model.parameters())
    return any(gradient is not None and gradient.data_ptr() == tensor.data_ptr() for gradient in gradients)


def _recording() -> tuple[Any, Any]:
    """The hook of `doctor watch`, and the files of this rank; None where there are none."""
    hook = sys.modules.get("doctor_watch_hook")
    return hook, hook.recording() if hook else None
