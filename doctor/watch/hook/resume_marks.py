"""Marks of a training's state: when it is saved, and when a training begins. Python 3.8, torch 2.1.

A mark is a small file beside the digests. `doctor watch` keeps those of checkpoints in the user's state folder, and
compares with them what a later run begins with. A rank that does not save itself learns of the save from the others of
its host. Nothing here communicates, draws a random number or changes a tensor. A part of the hook.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import threading
import time
import weakref
from typing import Any

from .checkpoint_calls import CheckpointCalls, SavedContents
from .digest import generator_digest, generator_digests, raw_generators, value_digest
from .loaded_contents import LoadedContents
from .mask_draws import note_seeds
from .module_values import input_tensors
from .training_state import TrainingState

SIGNAL = "saves"
"""A file beside the marks, to which each rank that saves appends its step."""
MAX_MARKS = 4
"""Files of one process: the newest."""
MAX_LOADS = 64
MAX_PATHS = 32
LATER_STEPS = 1


class ResumeMarks:
    """Of one process. ``collection``: the modules, optimizers and steps that the other hooks know."""

    def __init__(self, collection: Any) -> None:
        self.collection, self.torch, self.out = collection, collection.torch, collection.out
        self.state = TrainingState(collection.torch, collection)
        self.contents = LoadedContents(collection.torch)
        self.position = collection.position
        guard = collection.guard
        self.calls = CheckpointCalls(
            lambda *arguments: guard(self._saving, *arguments),
            lambda *arguments: guard(self._loading, *arguments),
            lambda *arguments: guard(self._setting, *arguments),
        )
        self.folder = collection.out.folder
        self.begun = False
        """Whether the state at the first forward pass was written."""
        self.loads: list[tuple[str, str]] = []
        self.unloaded: list[str] = []
        self.states_set: dict[str, list[str]] = {}
        self.seeded: set[str] = set()
        """Generators that were seeded after their state was set."""
        self.seeded_steps: dict[str, tuple[int, int]] = {}
        """By generator, the latest step in which it was seeded, and in how many it was."""
        self.first: dict[str, Any] = {"in0": [], "lr0": [], "g0": {}}
        """What this process had when its training began."""
        self.backward_passes = 0
        """Since the optimizer's latest step."""
        self.ends: list[tuple[dict[str, Any], dict[int, tuple[int, int]]]] = []
        """The generators, and how far the loaders were, after the step before the latest, and after the latest."""
        self.signal_size = 0
        self.current: dict[str, Any] = {}
        """The small part of the latest mark, which grows for a while."""
        self.awaited = 0
        """Forward passes whose inputs are still to be added to it."""
        self.files: list[str] = []
        self.trainer = (0, 0)
        """The process and the thread that train. Another one saves a copy; only it knows from when the copy is."""

    def install(self) -> None:
        """Wraps what makes, saves and loads states."""
        torch, collection = self.torch, self.collection
        self.calls.install()
        note_seeds(self._seeding)
        atexit.register(collection.guard, self._learn_of_save)
        schedulers = torch.optim.lr_scheduler
        kind = getattr(schedulers, "LRScheduler", None) or schedulers._LRScheduler
        for made in (kind, schedulers.ReduceLROnPlateau):  # of these, the second calls no other's ``__init__``
            collection._after_init(made, lambda instance: self.state.schedulers.append(weakref.ref(instance)))
        swa_utils = getattr(torch.optim, "swa_utils", None)
        if swa_utils is not None:
            averages = self.state.averages
            collection._after_init(swa_utils.AveragedModel, lambda instance: averages.append(weakref.ref(instance)))
        scaler = getattr(torch.amp, "GradScaler", None) or torch.cuda.amp.GradScaler
        collection._after_init(scaler, lambda instance: self.state.scalers.append(weakref.ref(instance)))
        for owner, part in ((torch.nn.Module, "model"), (torch.optim.Optimizer, "optimizer"), (kind, "scheduler")):
            self._after_load(owner, part)
        self._after_load(scaler, "scaler")

    def _after_load(self, owner: Any, part: str) -> None:
        original = owner.load_state_dict

        @functools.wraps(original)
        def load_state_dict(instance: Any, /, *arguments: Any, **named: Any) -> Any:
            result = original(instance, *arguments, **named)
            self.collection.guard(self._loading, part, "", instance, result)
            return result

        owner.load_state_dict = load_state_dict

    # What the program does

    def _loading(self, part: str, path: str, instance: Any = None, result: Any = None) -> None:
        if self.collection.step:
            return
        self.calls.install()
        if len(self.loads) < MAX_LOADS and (part, path) not in self.loads:
            self.loads.append((part, path))
        if part == "model":
            absent = list(getattr(result, "missing_keys", None) or ())
            self.unloaded = [name[:120] for name in absent[:64]] if absent else []
        elif part == "file":
            self.contents.look(result, os.path.basename(path)[:60])
        self.begun = False

    def _seeding(self, name: str, _: Any) -> None:
        step, generator = self.collection.step, name.partition(".")[0].replace("random", "python")
        if self.collection.compiling():
            return
        if not step:
            self.seeded.add(generator)
        latest, count = self.seeded_steps.get(generator, (0, 0))
        self.seeded_steps[generator] = step, count + (step > latest)

    def _setting(self, generator: str, state: Any) -> None:
        if not self.collection.step:
            self.seeded.discard(generator)
            digests = self.states_set.setdefault(generator, [])
            if len(digests) < 16:
                digests.append(generator_digest(generator, state))

    def _saving(self, content: Any, path: str) -> None:
        collection = self.collection
        if not collection.step or self.trainer != (os.getpid(), threading.get_ident()):
            return
        contents = SavedContents(self.torch, self.state.names())
        contents.look(content)
        if not contents.parts:
            return
        if self.current.get("s") != collection.step or "late" in self.current:  # another rank was the first to save
            # A batch that was fetched since the step, and that ended the loop, was not learnt from.
            self._mark(collection.step, raw_generators(self.torch), self.ends[-1][1], with_state=True)
            self._tell_others(collection.step)
        self.current["parts"] = sorted({*self.current["parts"], *contents.parts})
        if path and path not in self.current["paths"] and len(self.current["paths"]) < MAX_PATHS:
            self.current["paths"].append(path)
        self._write_more()

    def _tell_others(self, step: int) -> None:
        path = os.path.join(self.folder, SIGNAL)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, b"%d\n" % step)
            self.signal_size = os.fstat(handle).st_size
        finally:
            os.close(handle)

    def _mark(
        self, step: int, generators: dict[str, Any], counts: dict[int, tuple[int, int]], with_state: bool
    ) -> None:
        """``with_state``: with the digests of all tensors; else the generators and the data alone."""
        self.current = {"k": "more", "s": step, "parts": [], "paths": [], "later": []}
        self.awaited = LATER_STEPS
        state = self.state.read() if with_state else {}
        state["open"] = self.backward_passes if state.get("grads") else 0
        state["seeded"] = sorted(name for name, (_, count) in self.seeded_steps.items() if count >= step - 1 > 0)
        self._write("saved", step, generators, counts, state)

    def _write(
        self,
        kind: str,
        step: int,
        generators: dict[str, Any],
        counts: dict[int, tuple[int, int]],
        state: dict[str, Any],
    ) -> None:
        document = {
            "k": kind, "v": 1, "r": self.out.rank_now(), "w": _world(self.torch), "s": step, "at": time.time(),
            "host": socket.gethostname()[:64], "g": generator_digests(generators),
            "loaders": self.position.states(counts), "held": self.state.held.digests(), **self.first, **state,
        }  # fmt: skip
        name = f"{socket.gethostname()[:64]}-{os.getpid()}-{kind}-{step}"
        if kind == "saved":
            self.files.append(name)
            for old in self.files[:-MAX_MARKS]:
                for suffix in (".mark", ".more"):
                    if os.path.exists(os.path.join(self.folder, old + suffix)):
                        os.unlink(os.path.join(self.folder, old + suffix))
            self.files = self.files[-MAX_MARKS:]
        self._put(name + ".mark", document)

    def _write_more(self) -> None:
        self._put(self.files[-1] + ".more", {**self.current, "r": self.out.rank_now()})

    def _put(self, name: str, document: dict[str, Any]) -> None:
        draft, path = os.path.join(self.folder, "." + name), os.path.join(self.folder, name)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(document, file, separators=(",", ":"))
        os.rename(draft, path)

    # Where the training is

    def before_forward(self, module: Any, arguments: Any, named: Any) -> None:
        if not self.begun:
            self.calls.install()
            self.first["in0"] = self._inputs(arguments, named)
            self._begin(with_buffers=True)
        elif self.awaited and self.current:
            self.awaited -= 1
            self.current["later"].append(self._inputs(arguments, named))
            self.current["ahead"] = {
                position.number: [position.epoch, position.yielded, position.state()["crc"][-1:]]
                for position in self.position.loaders.values()
            }
            self._write_more()

    def hooks_before_gathers(self, module: Any) -> list[Any]:
        """Of FSDP2: a mark is made before gathered parameters stand in the place of those that the optimizer holds."""
        if not is_gathered(module):
            return []
        collection = self.collection

        def mark(module: Any, arguments: Any, named: Any) -> None:
            if not collection.compiling() and not collection.depth and collection.trains(module):
                collection.guard(self.before_forward, module, arguments, named)

        mark.of_doctor = True  # type: ignore[attr-defined]
        return [module.register_forward_pre_hook(mark, prepend=True, with_kwargs=True)]

    def _inputs(self, arguments: Any, named: Any) -> list[Any]:
        tensors = [tensor for _, tensor in input_tensors(arguments, named, 8)]
        return [str(value_digest(tensor.detach().cpu() if tensor.is_cuda else tensor)) for tensor in tensors]

    def _begin(self, with_buffers: bool) -> None:
        self.begun = True
        groups = [group for optimizer in self.collection.ordered_optimizers() for group in optimizer.param_groups]
        self.first["lr0"] = [float(group["lr"]) for group in groups if group.get("lr") is not None][:32]
        generators, held = raw_generators(self.torch), self.state.held
        self.collection.guard(held.look, dict(self.state.names().values()), self._is_known)
        state = self.state.read(with_buffers)
        self.first.update(g0=generator_digests(generators), frozen0=state["frozen"], evaluating0=state["evaluating"])
        modules = [name for name, copy in held.copies.items() if held.is_module(copy)]
        self.first.update(held0=held.digests(), averages0=state["averages"], modules0=modules)
        state.update(loads=self.loads, unloaded=self.unloaded, set=self.states_set, seeded=sorted(self.seeded))
        state.update(unapplied=self.contents.unapplied(self.state.known()) if with_buffers else [])
        self._write("begun", 0, generators, self.position.counts(), state)

    def _is_known(self, held: Any) -> bool:
        """Whether it is compared as such, or was read from a file."""
        averages = [reference() for reference in self.state.averages]
        return id(held) in self.contents.containers or any(held is average for average in averages)

    def before_step(self) -> None:
        """The optimizer is about to step; what was loaded since the forward pass counts."""
        if not self.begun:
            self._begin(with_buffers=False)

    def after_step(self) -> None:
        self.trainer = os.getpid(), threading.get_ident()
        self.backward_passes = 0
        self.calls.install()
        self.ends = [*self.ends[-1:], (raw_generators(self.torch), self.position.counts())]
        self._learn_of_save()

    def _learn_of_save(self) -> None:
        """Notes what this rank had when another one of the host saved; a save that ends the run is met at its exit."""
        if self.trainer[0] != os.getpid():  # a child, which inherits this
            return
        try:
            size = os.stat(os.path.join(self.folder, SIGNAL)).st_size
        except OSError:
            return
        if size <= self.signal_size:
            return
        self.signal_size = size
        with open(os.path.join(self.folder, SIGNAL), "rb") as file:
            file.seek(max(size - 24, 0))
            saved_step = int(file.read(24).split()[-1])
        step = self.collection.step
        if self.current.get("s") == saved_step or saved_step not in (step, step - 1):
            return
        # The others have saved before this step could end: what was drawn since the last one, this rank alone knows.
        self._mark(saved_step, *self.ends[-1 if saved_step == step else 0], with_state=False)
        self.current["late"] = step - saved_step
        self._write_more()


def _world(torch: Any) -> int:
    distributed = torch.distributed
    return int(distributed.get_world_size()) if distributed.is_available() and distributed.is_initialized() else 1


def is_gathered(module: Any) -> bool:
    """Whether FSDP2 shards its parameters."""
    return any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__)
