"""Records every collective of c10d, of any caller: Python, DistributedDataParallel's C++, functional collectives.

Each of them goes through an operator of torch's dispatcher. At the dispatch key BackendSelect, which every call passes
in every mode and before the backend's own kernel, stands a function that records the call and passes it on unchanged.
`Work.wait` shows where the rank waits for it.
"""

from __future__ import annotations

import functools
import threading
import weakref

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.recorder_page import MOST_TAGS, UNBOUND_SIZE, message_group
from doctor.watch.hook.rank_files import recording, stop_recording

OPERATORS = {
    name: operation
    for operation, names in {
        "all_reduce": ("allreduce_", "allreduce_coalesced_"),
        "broadcast": ("broadcast_",),
        "reduce": ("reduce_",),
        "all_gather": ("allgather_", "_allgather_base_", "allgather_coalesced_", "allgather_into_tensor_coalesced_"),
        "reduce_scatter": ("reduce_scatter_", "_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_"),
        "gather": ("gather_",),
        "scatter": ("scatter_",),
        "all_to_all": ("alltoall_", "alltoall_base_"),
        "barrier": ("barrier", "monitored_barrier_"),
        "send": ("send",),
        "recv": ("recv_",),
        "": ("recv_any_source_",),
    }.items()
    for name in names
}  # fmt: skip
"""Operators of c10d, and what they do; empty: recorded as time that no rule judges."""
METHODS = (
    "allreduce", "allreduce_coalesced", "broadcast", "reduce", "allgather", "_allgather_base", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced",
    "gather", "scatter", "alltoall", "alltoall_base", "barrier", "monitored_barrier", "send", "recv", "recv_anysource",
)  # fmt: skip
"""Of a ProcessGroup: what returns a Work to Python."""
UNEQUAL = frozenset({"gather_", "scatter_", "alltoall_", "alltoall_base_", "allgather_coalesced_"})
"""Operators whose sizes may differ between ranks."""


@functools.lru_cache(maxsize=64)
def name_of_dtype(dtype):
    """Such as ``float32``."""
    return str(dtype)[6:]


class Waits(threading.local):
    """Of each thread: whether Python has called the process group, and the call that came of it."""

    def __init__(self):
        self.inside = False
        self.call = None


WAITS = Waits()
CALLS = weakref.WeakKeyDictionary()
"""The call that each Work of the program belongs to."""


class Interception:
    """One operator's way through the hook."""

    def __init__(self, torch, groups, name):
        self.op = getattr(torch.ops.c10d, name).default
        arguments = [argument.name for argument in self.op._schema.arguments]
        self.pass_on = self.op._handle.redispatch_boxed
        self.name, self.operation, self.groups = name, OPERATORS[name], groups
        self.group_at = arguments.index("process_group")
        root = [word for word in ("root_rank", "dst", "src") if word in arguments]
        self.root_at = arguments.index(root[0]) if root else None
        # What the size of the call is read from: the input where there is one.
        inputs = [word for word in ("input_tensors", "input_tensor", "input", "inputs") if word in arguments]
        self.sized_at = arguments.index(inputs[0]) if inputs else 0
        self.unbox = torch.distributed.ProcessGroup.unbox
        self.after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
        self.keys = torch._C._dispatch_keys
        self.included = torch._C._dispatch_tls_local_include_set
        self.excluded = torch._C._dispatch_tls_local_exclude_set

    def __call__(self, *args):
        files = recording()
        if files is not None:
            try:
                WAITS.call = self.record(files, args)
            except Exception as error:
                stop_recording(filled("recording {0} failed: {1}", self.name, error))
        keys = self.keys(first_tensor(args))
        return self.pass_on(((keys | self.included()) - self.excluded()) & self.after, *args)

    def record(self, files, args):
        if not self.operation:
            files.become("start")
            return None
        group = self.unbox(args[self.group_at])
        number, ranks = self.groups.number(group)
        tensors = args[self.sized_at]
        single = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else tensors
        first, numel = first_tensor((single, args)), 0  # who receives a scatter has no input
        root = args[self.root_at] if self.root_at is not None else -1
        root = ranks[root] if 0 <= root < len(ranks) else -1
        if self.operation != "barrier":
            numel = total(single) + (UNBOUND_SIZE if self.name in UNEQUAL else 0)
        if self.name == "allgather_":  # inputs may be of unlike sizes; how much all of them are is the same everywhere
            numel = total(args[0]) // len(ranks)
        if self.operation in ("send", "recv"):
            return self.record_message(files, args, root, first, numel)
        dtype = "" if self.operation == "barrier" else name_of_dtype(first.dtype)
        # What C++ has called, it may be waiting for from now on; what Python has called, it says so when it waits.
        return files.begin(number, self.operation, dtype, root, numel, "collective" if WAITS.inside else "enqueued")

    def record_message(self, files, args, peer, tensor, numel):
        """Messages of one tag arrive in their order, and may overtake others; backends of devices have no tags."""
        tag = args[-1]
        if tag and (tag not in range(MOST_TAGS) or tensor.device.type != "cpu"):
            files.become("start")
            return None
        me, world = self.groups.c10d.get_rank(), self.groups.c10d.get_world_size()
        source, target = (me, peer) if self.operation == "send" else (peer, me)
        number = message_group(source, target, world, tag)
        return files.begin(number, self.operation, name_of_dtype(tensor.dtype), peer, numel)


def first_tensor(values):
    """The first tensor in nested lists, which may be empty; None where there is none."""
    for value in values:
        if isinstance(value, (list, tuple)):
            value = first_tensor(value)
        if hasattr(value, "untyped_storage"):
            return value
    return None


def total(values):
    """How many elements."""
    return sum(total(value_part) for value_part in values) if isinstance(values, (list, tuple)) else values.numel()


def wrap_method(original):
    """A method of ProcessGroup that returns a Work: remembers which call the Work belongs to."""

    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if recording() is None or WAITS.inside:
            return original(self, *args, **kwargs)
        WAITS.inside, WAITS.call = True, None
        try:
            work = original(self, *args, **kwargs)
        finally:
            WAITS.inside = False
        files = recording()
        if files is not None:
            call = WAITS.call
            if work is not None and call is not None:
                CALLS[work] = call
            # A call that is not asynchronous is waited for at once, and stays in the collective until then. Without a
            # Work (torch from 2.8 on, on a device) it was put behind the device's stream, and the rank goes on.
            if call is None or work is None or getattr(args[-1] if args else None, "asyncOp", True):
                files.become("start" if call is None else "compute")
        return work

    return method


def wrap_wait(original):
    """`Work.wait`: the rank is in the collective as long as it waits."""

    @functools.wraps(original)
    def wait(self, *args, **kwargs):
        files, call = recording(), CALLS.get(self)
        if files is None or call is None:
            return original(self, *args, **kwargs)
        if files.last is not call:
            files.wait(call)
        result = original(self, *args, **kwargs)  # where it raises, the rank is still in the collective
        if recording() is files:
            files.become("compute")
        return result

    return wait


def intercept_collectives(torch, groups):
    """Returns what must stay alive. May raise any exception on unknown versions of torch."""
    library = torch.library.Library("c10d", "IMPL")
    for name in OPERATORS:
        if hasattr(torch.ops.c10d, name):
            library.impl(name, Interception(torch, groups, name), "BackendSelect")
    kind = torch.distributed.ProcessGroup
    for name in METHODS:
        if name in vars(kind):
            setattr(kind, name, wrap_method(getattr(kind, name)))
    work = torch.distributed.Work
    work.wait = wrap_wait(work.wait)
    return library
