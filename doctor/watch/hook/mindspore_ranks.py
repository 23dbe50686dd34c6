"""Records the collectives of MindSpore that Python calls (PyNative mode), its steps, and its waits for a dataset.

Each collective is a primitive, an object that is called: `mint.distributed`, `communication.comm_func` and
`ops.AllReduce` all end there. A graph that MindSpore has compiled runs as one call, and Python sees nothing of it: its
steps count where `Model.train` or a `TrainOneStepCell` runs it, and the collectives within do not.
Source: mindspore/communication/management.py, ops/auto_generate/gen_ops_prim.py, ops/operations/comm_ops.py of
MindSpore 2.10, with which this was tried.
"""

from __future__ import annotations

import functools
import os

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.recorder_page import DTYPES
from doctor.watch.hook.rank_files import TRAINING, recording, start_recording, stop_recording
from doctor.watch.hook.training import mark_iterator, report_exceptions

PRIMITIVES = {
    name: operation
    for operation, names in {
        "all_reduce": ("AllReduce",),
        "broadcast": ("Broadcast",),
        "reduce": ("Reduce",),
        "all_gather": ("AllGather", "AllGatherIntoTensor", "AllGatherIntoTensorUneven", "AllGatherV"),
        "reduce_scatter": ("ReduceScatter", "ReduceScatterTensor", "ReduceScatterTensorUneven", "ReduceScatterV"),
        "gather": ("Gather", "GatherIntoTensor", "CollectiveGather"),
        "scatter": ("Scatter", "ScatterTensor", "CollectiveScatter"),
        "all_to_all": ("AlltoAll", "AlltoAllV", "AlltoAllVC", "AllToAllV", "AllToAllVC", "AllToAllVSingle"),
        "barrier": ("Barrier",),
        "": ("Isend", "Irecv", "BatchIsendIrecv", "BatchISendIRecv", "Send", "Receive", "NeighborExchange",
            "NeighborExchangeV2"),
    }.items()
    for name in names
}  # fmt: skip
"""Names of primitives without ``InnerComm`` and ``DistComm``; empty: recorded as time that no rule judges."""
EQUAL = frozenset(
    {"AllReduce", "Broadcast", "Reduce", "AllGather", "AllGatherIntoTensor", "ReduceScatter", "ReduceScatterTensor"}
)
"""Primitives whose sizes are the same on all ranks."""


class MindSporeGroups:
    """Numbers groups in the order in which this rank first uses them; the one of all ranks is 0."""

    def __init__(self, management):
        self.management = management
        self.world = range(0)
        self.created = {}  # name of a group -> its global ranks
        self.numbered = {}

    def number(self, name):
        numbered = self.numbered.get(name)
        if numbered is None:
            ranks = self.created.get(name)
            if ranks is None:
                ranks = self.world if name == self.management.GlobalComm.WORLD_COMM_GROUP else ()
            numbered = self.numbered[name] = (len(self.numbered), list(ranks))
            recording().emit("group", gid=numbered[0], name=str(name)[:200], desc="", ranks=numbered[1])
        return numbered


GROUPS = []
"""The `MindSporeGroups` of this process, once MindSpore's communication is imported."""


def wrap_communication(management):
    """`init` begins the recording. `management`: the module mindspore.communication.management."""
    groups = MindSporeGroups(management)
    GROUPS.append(groups)
    for name in ("init", "_init_with_store"):
        original = getattr(management, name, None)
        if original is not None:
            setattr(management, name, wrap_mindspore_init(original, groups))
    create = management.create_group

    @functools.wraps(create)
    def create_group(group, rank_ids, *args, **kwargs):
        result = create(group, rank_ids, *args, **kwargs)
        if isinstance(rank_ids, (list, tuple)) and len(groups.created) < 10000:
            groups.created[group] = [int(rank) for rank in rank_ids]
        return result

    management.create_group = create_group


def wrap_mindspore_init(original, groups):
    """One of the functions that let this process meet the others."""

    @functools.wraps(original)
    def init(*args, **kwargs):
        if os.environ.get("MS_ROLE") == "MS_SCHED" or recording() is not None:
            return original(*args, **kwargs)
        try:
            environ = os.environ
            number = environ.get("RANK_ID") or environ.get("MS_NODE_ID") or ""
            count = environ.get("MS_WORKER_NUM") or environ.get("RANK_SIZE") or ""
            address = "%s:%s" % (environ.get("MS_SCHED_HOST", ""), environ.get("MS_SCHED_PORT", ""))
            start_recording(int(number) if number.isdigit() else -1, int(count) if count.isdigit() else -1, address)
        except Exception as error:
            stop_recording("%s: %s" % (type(error).__name__, error))
        try:
            result = original(*args, **kwargs)
        finally:
            if recording() is not None:
                report_exceptions()  # MindSpore sets a handler of its own, which does not go on to an earlier one
        files = recording()
        if files is not None:
            try:
                rank, size = groups.management.get_rank(), groups.management.get_group_size()
                groups.world = range(size)
                backend = str(groups.management.GlobalComm.BACKEND)[:40]
                files.emit("joined", rank=rank, world=size, backend=backend, library="mindspore")
                groups.number(groups.management.GlobalComm.WORLD_COMM_GROUP)
                files.stage = TRAINING
                files.become("compute")
            except Exception as error:
                stop_recording(filled("MindSpore's group cannot be watched: {0}: {1}", type(error).__name__, error))
        return result

    return init


def wrap_primitives(module):
    """The collectives among a module's classes."""
    generated = module.__name__.endswith("gen_ops_prim")
    for name, primitive in list(vars(module).items()):
        if not isinstance(primitive, type) or primitive.__module__ != module.__name__:
            continue
        base = name.replace("InnerComm", "", 1).replace("DistComm", "", 1)
        if base in PRIMITIVES and (base != name) == generated:
            primitive.__call__ = wrap_primitive(primitive.__call__, base)


def wrap_primitive(original, base):
    """The call of a primitive, recorded."""
    operation, code = PRIMITIVES[base], getattr(original, "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    group_at = names.index("group") if "group" in names else -1
    # Of several tensors, what is sent tells the size.
    sized_at = names.index("input") if "input" in names else 0

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        files = recording()
        if files is not None:
            try:
                record_primitive(files, self, args)
            except Exception as error:
                stop_recording(filled("recording {0} failed: {1}", base, error))
        return original(self, *args, **kwargs)

    def record_primitive(files, primitive, args):
        if not operation:
            files.become("start")
            return
        group = args[group_at] if 0 <= group_at < len(args) else getattr(primitive, "group", None)
        management = GROUPS[0].management
        number, ranks = GROUPS[0].number(group or management.GlobalComm.WORLD_COMM_GROUP)
        if not ranks:  # which ranks take part is not known
            files.become("start")
            return
        tensor = args[sized_at] if operation != "barrier" and len(args) > sized_at else None
        dtype = str(getattr(tensor, "dtype", "")).lower()
        numel = int(getattr(tensor, "size", 0)) if base in EQUAL else 0
        # It returns at once, and the rank waits for it in the operation that needs its result.
        files.begin(number, operation, dtype if dtype in DTYPES else "", -1, numel, "enqueued")

    return call


def wrap_steps(module):
    """An optimizer that has been called is a step, and so is a compiled one that a training cell runs."""
    for name in ("Optimizer", "TrainOneStepCell"):
        cell = vars(module).get(name)
        if isinstance(cell, type):
            cell.__call__ = wrap_step(cell.__call__)


def wrap_step(original):
    """The call of an optimizer or of a training cell: when it is over, so is a step."""

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        files = recording()
        step = files.step if files is not None else 0
        result = original(self, *args, **kwargs)
        if files is not None and recording() is files and files.step == step:
            files.next_step()
        return result

    return call


def wrap_dataset(module):
    """The time in which a dataset is waited for."""
    iterator = vars(module).get("Iterator")
    if isinstance(iterator, type) and hasattr(iterator, "__next__"):
        mark_iterator(iterator)


MINDSPORE_MODULES = {
    "mindspore.communication.management": wrap_communication,
    "mindspore.ops.auto_generate.gen_ops_prim": wrap_primitives,
    "mindspore.ops.operations.comm_ops": wrap_primitives,
    "mindspore.nn.optim.optimizer": wrap_steps,
    "mindspore.experimental.optim.optimizer": wrap_steps,
    "mindspore.nn.wrap.cell_wrapper": wrap_steps,
    "mindspore.dataset.engine.iterators": wrap_dataset,
}
"""What is done after each of these modules has been imported."""
