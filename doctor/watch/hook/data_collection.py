"""Digests inputs, random generators, gradients and parameters in the steps of a schedule. Python 3.8, torch 2.1.

A step ends with the first optimizer's ``step``. Nothing here communicates, draws a random number or changes a tensor;
hooks on modules and parameters are there in digested steps only. What is compiled is not looked into. A part of the
hook.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import weakref
import zlib
from typing import Any, Callable

from .batch_indices import BatchIndices
from .called_modules import CalledModules
from .channel import Channel, channel
from .data_position import DataPosition
from .digest import Unread, finite_or_text, generators, local_tensor, shape_of, tensor_digest
from .digest_records import MAX_TENSORS
from .gradient_sketch import GradientSketch, backward_scale, should_move
from .gradient_totals import GradientTotals
from .group_use import GroupUse
from .mask_draws import MaskDraws, begin, note_seeds
from .module_values import ModuleValues, compile_test, in_training, input_tensors, is_compiled, tensors_in
from .resume_marks import ResumeMarks, is_gathered
from .shard_holders import ShardHolders
from .step_records import emit_entries, fills_states, holds_gradients, initial_values, updated_values, write_numbers

MAX_INPUTS = 32
MAX_FAILURES = 10
MAX_BUFFERS, MAX_BUFFER = 64, 1 << 16
"""Of a model, that are digested, and their elements."""
LATER = frozenset(4**power for power in range(2, 20))
SAMPLES = 64
"""Elements of each input that are compared one by one, evenly spread: how alike two inputs are that are not equal."""


class DigestCollection:
    """All hooks of this process, and the step that it is in."""

    def __init__(self, torch: Any, out: Channel, first: int, every: int) -> None:
        self.torch, self.out, self.first, self.every = torch, out, first, every
        self.step = self.forwards = self.failures = self.depth = self.passes = 0
        self.rows = 0
        """Of the batch that is in its forward pass; 0: none is."""
        self.ended = self.has_run = False  # the hooks; a model that trains
        self.main: Any = None
        self.called = CalledModules(torch, out, self)
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizer_numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.sketch: GradientSketch | None = None
        self.totals: GradientTotals | None = None
        self.holders = ShardHolders(torch)
        self.values: ModuleValues | None = None
        self.masks: MaskDraws | None = None
        self.before: dict[str, Any] = {}
        self.copies: list[Any] = []
        """What the optimizer holds in the place of the model's parameters, where it holds none of these."""
        self.thread = threading.get_ident()
        self.compiling = compile_test(torch)
        self.groups = GroupUse(torch, out, self)
        self.position = DataPosition(self.trains, self.guard)
        self.marks = ResumeMarks(self) if out.folder else None

    @property
    def sampled(self) -> bool:
        """Whether the present step is digested."""
        step, every = self.step, self.every
        is_later = step % every == 0 if every > 0 else every < 0 and step in LATER
        return not self.ended and (step < self.first or is_later)

    def guard(self, call: Callable[..., None], *arguments: Any) -> None:
        """Calls; what it raises is written, and after many failures nothing is called any more."""
        if self.ended or self.out.file < 0:
            return
        try:
            if self.out.pending:
                self.out.drain()
            call(*arguments)
        except Exception as error:
            self.failures += 1
            self.ended = self.failures >= MAX_FAILURES
            self.out.write("failed", n=call.__name__.strip("_"), text=f"{type(error).__name__}: {error}"[:200])
            if self.ended:
                self.out.write("ended")

    # The program's objects

    def install(self) -> None:
        """Wraps what makes optimizers, wrapped models and losses."""
        torch = self.torch
        optimizer = importlib.import_module("torch.optim.optimizer")
        optimizer.register_optimizer_step_pre_hook(self._prepare_step)
        optimizer.register_optimizer_step_post_hook(lambda *arguments: self.guard(self._after_step, arguments[0]))
        self.called.install()
        self._after_init(torch.optim.Optimizer, self._new_optimizer)
        self._after_init(torch.nn.parallel.DistributedDataParallel, self._new_replica)
        self._after_init(torch.utils.data.distributed.DistributedSampler, lambda sampler: None)
        compiled = getattr(getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", None), "__mro__", ())
        if compiled:
            self._after_init(compiled[0], self.called.add)
        backward = torch.autograd.backward

        def wrapped(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if not self.compiling():
                if self.sampled:
                    self.guard(self.out.note_line, "backward")
                self.guard(self._loss, tensors, arguments[0] if arguments else named.get("grad_tensors"))
            result = backward(tensors, *arguments, **named)
            self.groups.mapped = -1  # the gradients are there only now
            return result

        torch.autograd.backward = wrapped
        self.groups.install()
        self.position.install()
        BatchIndices(torch, self.out.write, max(self.first, 4), self.position, self.out.note_line).watch_workers()
        note_seeds(self._seeded)
        if self.marks:
            self.marks.install()

    def _seeded(self, name: str, seed: Any) -> None:
        if not self.compiling():
            self.guard(self.out.note_seed, name, seed)

    def _after_init(self, kind: Any, call: Callable[[Any], None]) -> None:
        original = kind.__init__

        @functools.wraps(original)
        def initialize(instance: Any, /, *arguments: Any, **named: Any) -> None:
            original(instance, *arguments, **named)
            self.guard(self.out.note_line, type(instance).__name__)
            self.guard(call, instance)

        kind.__init__ = initialize

    def _new_optimizer(self, optimizer: Any) -> None:
        self.optimizers.add(optimizer)
        self.optimizer_numbers.setdefault(optimizer, len(self.optimizer_numbers))
        self.called.add_of(self._held(optimizer))

    def _new_replica(self, model: Any) -> None:
        self.begin_together(model)
        self.groups.use(model.process_group, "data", "DistributedDataParallel")
        self.called.add(model)

    def begin_together(self, model: Any) -> None:
        """The ranks begin to train this model together: what each did before, and how many steps, is its own."""
        if self.step and not self.groups.noted:
            self.out.write("anew")
            dropped = self.called.keep_only(model)
            self._forget_sketch()
            self.step, self.main = 0, None
            for optimizer in [each for each in self.optimizers if self._held(each).keys() <= dropped]:
                self.optimizers.discard(optimizer)

    def ordered_optimizers(self) -> list[Any]:
        """In the order in which they were made."""
        return sorted(self.optimizers, key=lambda optimizer: self.optimizer_numbers[optimizer])

    def trains(self, *modules: Any) -> bool:
        """Whether a call of these modules, or else of those that the program calls, belongs to a training."""
        called = modules or self.called.modules()
        return self.torch.is_grad_enabled() and (not called or any(map(in_training, called)))

    # One step

    def enter(self, module: Any, arguments: Any, named: Any) -> None:
        self.depth += 1
        if self.depth > 1 or not self.trains(module):
            return
        self.has_run = True
        if self.marks and not is_gathered(module):
            self.guard(self.marks.before_forward, module, arguments, named)
        if not self.sampled:
            return
        inputs = {path: self._input(tensor) for path, tensor in input_tensors(arguments, named, MAX_INPUTS)}
        self.forwards += 1
        self.rows = next((value[1][0] for value in inputs.values() if value[1]), 0)
        calls = self.groups.calls_so_far()
        self.out.write("inputs", s=self.step, i=self.forwards, m=type(module).__name__[:60], a=inputs, c=calls)
        self.out.write("random", s=self.step, i=self.forwards, at="forward", g=generators(self.torch))
        if not any(is_compiled(child) for child in module.modules()):
            in_shards = self.groups.sharded(module)
            if self.sketch is None and not in_shards:
                self.sketch = GradientSketch(self.torch, list(self.called.named()))
            if self.totals is None and (in_shards or self.copies):
                self.totals = GradientTotals(self.torch, module)
            self.values = ModuleValues(self.torch, module)
            self._end_masks()
            noted = {purpose for _, purpose in self.groups.noted}
            if self.step and noted & {"model", "activations", "rows"} and not self.masks:  # ranks that hold one model
                self.masks = begin(self.out, self.step, self.forwards)
        elif self.forwards == 1:
            self.out.write("note", text="compiled", n=type(module).__name__[:60])

    def _input(self, tensor: Any) -> list[Any]:
        try:
            local = local_tensor(tensor).detach()
            digest = tensor_digest(local)
            flat = local.reshape(-1)
            places = [number * flat.numel() // SAMPLES for number in range(SAMPLES)] if flat.numel() >= SAMPLES else []
            places = places or list(range(flat.numel()))
            sample: list[int] = []
            if isinstance(digest, str):
                few = flat[self.torch.tensor(places, dtype=self.torch.int64)]
                sample = [zlib.crc32(str(value).encode()) & 0xFFFF for value in few.tolist()]
            else:
                digest = f"w{int(digest) & (1 << 64) - 1:016x}"  # waits for the device, in digested steps only
        except Unread as error:
            return [None, shape_of(tensor), str(error)[:40], []]
        return [digest, shape_of(tensor), str(tensor.dtype), sample]

    def leave(self, module: Any, result: Any) -> None:
        self.depth = max(self.depth - 1, 0)
        if not self.depth:
            self._end_masks(between=True)
        if self.depth or self.values is None:
            return
        values, self.values = self.values, None
        values.remove()
        step = self.step
        self.out.write("outputs", s=step, d=sorted({str(tensor.dtype) for _, tensor in tensors_in(result)}))
        if values.first:
            self.out.write("nan", s=step, n=values.first[0][:120], at=values.first[1], c=values.count)
        if values.flags:
            names = [name for name, _ in values.flags]

            def use(flags: list[int]) -> None:
                if any(flags):
                    self.out.write("nan", s=step, n=names[flags.index(1)][:120], at="output", c=flags.index(1))

            self.out.later(self.torch.stack([flag for _, flag in values.flags]).to(self.torch.int64), use)

    def _end_masks(self, *, between: bool = False) -> None:
        """``between``: two modules of one forward pass, where a program may draw masks by itself."""
        if self.masks is not None and self.masks.leave(only_among_others=between):
            self.masks = None

    def _loss(self, tensors: Any, weights: Any) -> None:
        self._end_masks()
        self.rows = 0
        if self.marks and len(self.optimizers) == 1:
            self.marks.backward_passes += 1
        if isinstance(tensors, (list, tuple)):
            tensors = tensors[0] if len(tensors) == 1 else None
        if tensors is None or tensors.numel() != 1 or threading.get_ident() != self.thread:
            return
        if self.sampled:
            kind, factor = backward_scale(tensors, weights)
            fields = {"s": self.step, "how": kind, "f": finite_or_text(factor)}
            main = self.main and self.main()
            if main is not None and not self.passes and tensors.device.type == "cpu":
                fields["z"] = "kept" if holds_gradients(main) else "set to zero"
            self.passes += 1
            value = local_tensor(tensors).detach()
            if value.device.type == "cpu":
                self.out.write("backward", v=finite_or_text(value), **fields)
            else:
                value = value.double() if value.device.type == "cuda" else value.float()
                self.out.later(
                    value.reshape(1), lambda got: self.out.write("backward", v=finite_or_text(got[0]), **fields)
                )
        elif tensors.device.type == "cpu" and isinstance(finite_or_text(tensors.detach()), str):
            self.out.write("backward", s=self.step, v=finite_or_text(tensors.detach()), how="", f=0.0)

    def _prepare_step(self, optimizer: Any, arguments: Any, named: Any) -> Any:
        """Before a step; where it is given a function that computes the gradients, after that one's first call."""
        if optimizer not in self.optimizers:
            self.guard(self._new_optimizer, optimizer)
        closure = named.get("closure", arguments[1] if len(arguments) > 1 else None)
        if not callable(closure) or self.ended:
            self.guard(self._before_step, optimizer)
            return None
        calls: list[None] = []

        @functools.wraps(closure)
        def compute(*inner: Any, **inner_named: Any) -> Any:
            loss = closure(*inner, **inner_named)
            if not calls:
                calls.append(None)
                self.guard(self._before_step, optimizer)
            return loss

        if "closure" in named:
            return arguments, {**named, "closure": compute}
        return (arguments[0], compute, *arguments[2:]), named

    def _before_step(self, optimizer: Any) -> None:
        if not (self.step or self.has_run) and fills_states(optimizer):
            return
        if self.main is None or self.main() is None:
            self.main = weakref.ref(optimizer)
        if optimizer is self.main() and self.marks:
            self.marks.before_step()
        if optimizer is not self.main() or not self.sampled:
            return
        named = list(self.called.named())
        self.holders.learn(self.called.modules())
        held = self._held(optimizer)
        self.copies = [] if any(id(tensor) in held for _, tensor in named) else list(held.values())[:MAX_TENSORS]
        if self.copies:  # of the model's parameters (ZeRO, master weights): what it steps with are their gradients
            self._forget_sketch()
        else:
            self._emit("reduced", [(name, tensor, tensor.grad) for name, tensor in named if tensor.grad is not None])
        if not self.step:
            self.groups.write_left_out(named)
            for kind, entries in initial_values(self.optimizers, [*named, *self._outside(named)]):
                self._emit(kind, entries)
        self._add_up()
        if sketch := self._forget_sketch():
            write_numbers(self.torch, self.out, "sketch", sketch.values(), s=self.step)
        updated = self._updated(named)
        later = self._held(*self.optimizers).keys() - held.keys()  # by other optimizers, whose steps are still to come
        looked_at = ((name, tensor) for name, tensor in updated if tensor.requires_grad and id(tensor) not in later)
        self.before = {name: self._quiet_digest(tensor) for name, tensor in looked_at}

    def _forget_sketch(self) -> GradientSketch | None:
        sketch, self.sketch = self.sketch, None
        if sketch:
            sketch.remove()
        return sketch

    def _held(self, *optimizers: Any) -> dict[int, Any]:
        """The tensors that optimizers step, by their ids."""
        groups = [group for registered in optimizers for group in registered.param_groups]
        return {id(tensor): tensor for group in groups for tensor in group["params"]}

    def _outside(self, named: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Tensors with gradients that no module has, of optimizers that step a module's as well."""
        ids = {id(tensor) for _, tensor in named}
        held = [self._held(optimizer) for optimizer in self.ordered_optimizers()]
        tensors = [tensor for each in held if ids & each.keys() for key, tensor in each.items() if key not in ids]
        return [(f"optimizer tensor {number}", t) for number, t in enumerate(tensors) if t.grad is not None]

    def _updated(self, named: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """What the optimizer's step changes at once: the model's parameters, or copies that it holds of them."""
        return [(f"optimizer tensor {number}", tensor) for number, tensor in enumerate(self.copies)] or named

    def _quiet_digest(self, tensor: Any) -> Any:
        try:
            return tensor_digest(local_tensor(tensor))
        except Unread:
            return None

    def _after_step(self, optimizer: Any) -> None:
        if self.main is None or optimizer is not self.main():
            return
        if not (self.step or self.has_run) and fills_states(optimizer):
            return
        if self.sampled:
            self._update(optimizer)
        self.step += 1
        self.depth = self.forwards = self.passes = self.rows = 0
        self._end_masks()
        if self.marks:
            self.marks.after_step()

    def _update(self, optimizer: Any) -> None:
        named = list(self.called.named())
        held = self._held(*self.optimizers)
        same, graded = [], []
        for name, tensor in self._updated(named):
            old = self.before.get(name)
            if old is not None and tensor.grad is not None:
                new = self._quiet_digest(tensor)
                moved = old != new if isinstance(old, str) else bool((old != new).item())
                if not moved:
                    same.append(name)
                if moved or should_move(self.torch, self.optimizers, tensor):
                    graded.append(name)
        still = [name for name in same if name in set(graded)]
        trained = [(name, tensor) for name, tensor in self._updated(named) if name in self.before]
        is_bare = bool(self.passes and trained) and all(tensor.grad is None for _, tensor in trained)
        if is_bare:
            graded = [name for name, tensor in trained if str(self.before[name]) != str(self._quiet_digest(tensor))]
        for kind, entries in updated_values(self.optimizers, [*named, *self._outside(named)]):
            self._emit(kind, entries)
        buffers = [(*row, row[1]) for row in self.called.buffers() if row[1].is_floating_point()]
        self._emit("buffers", [row for row in buffers if 0 < row[1].numel() <= MAX_BUFFER][:MAX_BUFFERS])
        names = [name for name, _ in named]
        self._emit("copies", [(*row, row[1]) for row in self.marks.state.held.tensors(names)] if self.marks else [])
        self.out.write(
            "update",
            s=self.step,
            lr=[finite_or_text(group.get("lr", 0.0)) for group in optimizer.param_groups][:32],
            calls=self.groups.operations(),
            moved=len(graded) - len(still),
            still=[name[:120] for name in still][:64],
            bare=is_bare,
            frozen=[name[:120] for name, tensor in named if not tensor.requires_grad][:64],
            unheld=[name[:120] for name, tensor in named if tensor.requires_grad and id(tensor) not in held][:64],
        )
        self.before = {}
        self.out.write("random", s=self.step, i=0, at="step", g=generators(self.torch))
        self.groups.parameters(self.called.modules())

    def _emit(self, kind: str, entries: list[tuple[str, Any, Any]]) -> None:
        emit_entries(self.out, self.holders, kind, entries, self.step)

    def _add_up(self) -> None:
        """What the backward passes of this step gave in all, and what the optimizers get of it."""
        totals, self.totals = self.totals, None
        if totals is None:
            return
        totals.remove()
        values = totals.values(list(self._held(*self.optimizers).values()))
        if values is not None:
            write_numbers(self.torch, self.out, "totals", values[0], s=self.step, n=values[1])


def install(torch: Any, first: int, every: int) -> bool:
    """Installs the hooks: digests of the first N steps, then of every Mth. Example: ``10, 100``; ``3, -1``."""
    if out := channel():
        DigestCollection(torch, out, first, every).install()
    return out is not None
