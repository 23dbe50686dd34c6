"""Records steps, and the time in which a rank waits for its data loader."""

from __future__ import annotations

import functools
import os
import sys
import time

from doctor.remote.runtime.host_texts import filled
from doctor.watch.hook.rank_files import recording, stop_recording


def count_steps():
    """Every `optimizer.step` that is over is a step."""

    def after_step(optimizer, args, kwargs):
        files = recording()
        if files is not None:
            files.next_step()

    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(after_step)


def mark_backward():
    """Records where a backward pass ends: there DistributedDataParallel waits for its collectives, in C++."""
    import torch

    original = torch.autograd.backward
    owner = next((one for one in (getattr(torch, "compiler", None), getattr(torch, "_dynamo", None)) if one), None)
    is_compiling = getattr(owner, "is_compiling", lambda: False)

    @functools.wraps(original)
    def backward(*args, **kwargs):
        files = None if is_compiling() else recording()
        if files is None or files.in_backward:
            return original(*args, **kwargs)
        files.enter_backward()
        try:
            return original(*args, **kwargs)
        finally:
            files.leave_backward()

    torch.autograd.backward = backward


def mark_input():
    """Records the time in which torch's loader is waited for."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
    if kind is not None:
        mark_iterator(kind)


def mark_iterator(iterator):
    """A rank that takes the next batch is in its input. ``iterator``: the class of what it takes it from."""
    original = iterator.__next__

    @functools.wraps(original)
    def take_next(self):
        files = recording()
        if files is None:
            return original(self)
        files.become("input")
        try:
            return original(self)
        finally:
            if recording() is files:
                files.become("compute")

    iterator.__next__ = take_next


def let_go_of_tensors():
    """Gives Python's lock to gloo's threads, which need it to free a tensor that Python, and so the hook, has seen.

    A group whose end comes before that holds the lock, and waits for its threads for ever. So no such thread may be
    about to run in several looks: each may wait for the lock until the next one, and for a CPU for longer.
    """
    looks = 0
    for _ in range(400):
        time.sleep(0.005)  # as long as a thread waits for the lock until it asks for it
        looks = 0 if gloo_runs() else looks + 1
        if looks == 4:
            return


def gloo_runs():
    """Whether a thread of gloo runs, or waits for a CPU."""
    try:
        for thread in os.listdir("/proc/self/task"):
            with open("/proc/self/task/%s/stat" % thread) as file:
                name, _, rest = file.read().partition("(")[2].rpartition(") ")
            if name.startswith("pt_gloo") and rest[:1] == "R":
                return True
    except OSError:
        pass  # a thread has ended, or there is no /proc
    return False


def report_exceptions():
    """Reports the error that ends the program before the program's own handler sees it."""
    import atexit
    import traceback

    handler, failed = sys.excepthook, []  # failed: how far the rank was at the last error

    def tell_error(kind, value, trace):
        current = recording()
        if current is not None:
            try:
                stack = "".join(traceback.format_tb(trace)[-12:])
                stack = stack if len(stack) <= 6000 else stack[-6000:].partition("\n")[2]  # whole lines
                failed[:] = [(current.calls, current.step)]
                text = ("%s: %s" % (kind.__name__, value))[:600]
                current.emit("error", text=text, stack=stack, calls=current.calls, step=current.step)
            except Exception as error:
                stop_recording(filled("an error could not be reported: {0}", error))
        handler(kind, value, trace)

    def tell_end():
        current = recording()
        if current is not None:
            let_go_of_tensors()
        # One that failed is not done; its end is still to come. Libraries print errors in this way after which a rank
        # goes on.
        if current is not None and failed != [(current.calls, current.step)]:
            try:
                current.emit("end")
                current.become("done")
            except OSError as error:
                stop_recording(filled("its end could not be reported: {0}", error))

    sys.excepthook = tell_error
    atexit.register(tell_end)
