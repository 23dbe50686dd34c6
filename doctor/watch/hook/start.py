"""Runs at the start of an interpreter: goes on to the user's own ``sitecustomize``, and waits for what it records.

That is torch.distributed, or MindSpore's communication.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import inspect
import os
import sys

from doctor.remote.runtime.host_texts import filled
from doctor.watch.hook.collectives import intercept_collectives
from doctor.watch.hook.mindspore_ranks import MINDSPORE_MODULES
from doctor.watch.hook.rank_files import FOLDER, TRAINING, forget_after_fork, recording, start_recording, stop_recording
from doctor.watch.hook.training import count_steps, let_go_of_tensors, mark_backward, mark_input, report_exceptions

TARGET = "torch.distributed.distributed_c10d"
HERE = os.path.join(FOLDER, "hook")
KEPT = []
"""What must stay alive as long as the program."""


class Groups:
    """Numbers process groups in the order in which this rank first uses them; the reader renumbers them by name."""

    def __init__(self, c10d):
        self.c10d = c10d
        self.numbered = {}  # name of the group -> (number, its global ranks)

    def number(self, group):
        name = group.group_name
        return self.numbered.get(name) or self.add(
            name, self.ranks(group), name=str(name)[:200], desc=self.description(group), timeout=self.timeout(group)
        )

    def add(self, key, ranks, **about):
        numbered = self.numbered[key] = (len(self.numbered), ranks)
        recording().emit("group", gid=numbered[0], ranks=ranks, **about)
        return numbered

    def forming(self, arguments):
        """Number of the ranks that form a new group together, where none returns before all have called it; else None.

        Gloo connects all members. NCCL does so where the device of the rank is known, and splits the whole job for it;
        else the others of the job wait only where TORCH_DIST_INIT_BARRIER says so. Their store knows the group by how
        many were made before: ranks that make the same groups in another order do not meet.
        Source: pytorch torch/distributed/distributed_c10d.py, _new_group_with_tag and _new_process_group_helper.
        """
        world = self.c10d._get_default_group()
        ranks = sorted(self.ranks(world) if arguments.get("ranks") is None else arguments["ranks"])
        backends = str(arguments.get("backend") or self.c10d.get_backend_config())
        device = arguments.get("device_id") or getattr(world, "bound_device_id", None)
        together = getattr(self.c10d, "_is_barrier_after_init", bool)() or (device and "nccl" in backends)
        in_order = not arguments.get("use_local_synchronization")
        if together and in_order:
            ranks = self.ranks(world)
        at_once = device or "gloo" in backends or "mpi" in backends
        if self.c10d.get_rank() not in ranks or not at_once:
            return None
        order = self.c10d._world.group_count if in_order else 0
        key, name = ("forming", order, *ranks), filled("no. {0} of", order) if order else "of"
        return (self.numbered.get(key) or self.add(key, ranks, name=name, timeout=self.timeout(world)))[0]

    def ranks(self, group):
        table = self.c10d._world.pg_group_ranks.get(group)
        return sorted(table, key=table.get) if table else list(range(group.size()))

    def timeout(self, group):
        """Seconds after which its backend gives up a collective; 0 where that is not known."""
        for kind in ("cpu", "cuda", "npu"):
            try:
                return group._get_backend(self.c10d.torch.device(kind)).options._timeout.total_seconds()
            except (RuntimeError, AttributeError, TypeError):
                continue
        return 0

    def description(self, group):
        """What the program calls it: DeviceMesh gives its dimension's name, and Megatron has functions of that name."""
        desc = str(getattr(group, "group_desc", "") or "")[:80]
        if desc and desc != "undefined":
            return desc
        for module in ("megatron.core.parallel_state", "mindspeed.core.parallel_state"):
            for name, value in vars(sys.modules.get(module, object)).items():
                if value is group and name.startswith("_"):
                    return name.strip("_").lower()
        return ""


def wrap_new_group(c10d, kept):
    """The forming of a group is a collective of its members. ``kept``: holds the `Groups`, from the first rank on."""
    name = "_new_group_with_tag" if hasattr(c10d, "_new_group_with_tag") else "new_group"
    original = getattr(c10d, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def new_group(*args, **kwargs):
        files, number = recording(), None
        if files is not None:
            try:
                number = kept[0].forming(signature.bind(*args, **kwargs).arguments)
                if number is not None:
                    files.begin(number, "new_group", "", -1, 0)
            except Exception as error:
                stop_recording(filled("recording {0} failed: {1}", "new_group", error))
        result = original(*args, **kwargs)  # where it raises, the rank is still in it
        if number is not None and recording() is files:
            files.become("compute")
        return result

    setattr(c10d, name, new_group)


class AfterImport:
    """Calls a function with each of some modules when it has been imported. ``functions``: of each module, by name.

    A program may ask for the specification of a module, as `importlib.util.find_spec` does, and import it later.
    """

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path=None, target=None):
        if name not in self.functions:
            return None
        finders = (getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self)
        specs = (find(name, path, target) for find in finders if find is not None)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = LoadThen(spec.loader, self.functions)
        return spec


class LoadThen:
    """A loader that is put in the place of another until it has loaded its module."""

    def __init__(self, loader, functions):
        self.loader, self.functions = loader, functions

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "loader"), name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        then = self.functions.pop(module.__name__, None)
        try:
            if then is not None:
                then(module)
        except Exception as error:
            print_line("cannot watch this program: %s: %s" % (type(error).__name__, error))


def print_line(text):
    """One line on stderr of the program, for what must be known at once."""
    try:
        os.write(2, ("doctor watch: process %d: %s\n" % (os.getpid(), text)).encode("utf-8", "replace"))
    except OSError:
        pass


def wrap_init(c10d):
    """`init_process_group` begins the recording."""
    original, original_end = c10d.init_process_group, c10d.destroy_process_group

    @functools.wraps(original)
    def init_process_group(*args, **kwargs):
        begin(c10d, args, kwargs)
        result = original(*args, **kwargs)
        files = recording()
        if files is not None:
            try:
                joined(c10d, files)
            except Exception as error:
                stop_recording(filled("the process group cannot be watched: {0}: {1}", type(error).__name__, error))
        return result

    @functools.wraps(original_end)
    def destroy_process_group(group=None):
        files = recording()
        if files is not None:
            let_go_of_tensors()
            if group is None or group is getattr(c10d.GroupMember, "WORLD", None):
                files.become("done")
        return original_end(group)

    c10d.init_process_group, c10d.destroy_process_group = init_process_group, destroy_process_group
    wrap_new_group(c10d, KEPT)


def begin(c10d, args, kwargs):
    """The rank is about to meet the others."""
    try:
        world = kwargs.get("world_size", args[3] if len(args) > 3 else -1)
        rank = kwargs.get("rank", args[4] if len(args) > 4 else -1)
        rank = int(rank if rank is not None and rank >= 0 else os.environ.get("RANK", "-1"))
        world = int(world if world is not None and world > 0 else os.environ.get("WORLD_SIZE", "-1"))
        method = kwargs.get("init_method", args[1] if len(args) > 1 else None)
        address = method[6:].partition("?")[0] if isinstance(method, str) and method.startswith("tcp://") else ""
        files = start_recording(rank, world, address, longest_wait(c10d, args, kwargs))
        import torch

        if not KEPT:
            groups = Groups(c10d)
            KEPT.append(groups)
            KEPT.append(intercept_collectives(torch, groups))
            for install in (count_steps, mark_backward, mark_input, report_exceptions, collect_data):
                try:
                    install()
                except Exception as error:
                    files.emit("hook", text="%s: %s" % (type(error).__name__, error))
        KEPT[0].numbered.clear()
    except Exception as error:
        stop_recording("%s: %s" % (type(error).__name__, error))
        print_line("cannot watch this process: %s: %s" % (type(error).__name__, error))


def longest_wait(c10d, args, kwargs):
    """Seconds for which `init_process_group` waits for the others; 0 where that is not known."""
    backend = kwargs.get("backend", args[0] if args else None)
    timeout = kwargs.get("timeout", args[2] if len(args) > 2 else None)
    try:
        timeout = timeout or c10d._get_default_timeout(c10d.Backend(str(backend or "undefined").partition(":")[0]))
    except Exception:
        timeout = timeout or getattr(c10d, "default_pg_timeout", None)
    return timeout.total_seconds() if hasattr(timeout, "total_seconds") else 0


def collect_data():
    """Digests of data, where they are asked for; that part is loaded by its path, and has no other names here."""
    path = os.path.join(FOLDER, "data-hooks", "data_hooks.py")
    if not os.environ.get("DOCTOR_WATCH_DATA") or not os.path.exists(path):
        return
    import torch

    spec = importlib.util.spec_from_file_location("doctor_watch_data", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install(torch)


def joined(c10d, files):
    """The rank has met the others."""
    group = c10d._get_default_group()
    files.emit("joined", rank=c10d.get_rank(), world=c10d.get_world_size(), backend=str(c10d.get_backend())[:40])
    KEPT[0].number(group)
    files.stage = TRAINING
    files.become("compute")


def run_users_own():
    """The ``sitecustomize`` that Python would have found without us."""
    path = [folder for folder in sys.path if os.path.abspath(folder) != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if FOLDER and os.path.isdir(os.path.join(FOLDER, "ranks")):
    sys.modules["doctor_watch_hook"] = sys.modules["sitecustomize"]
    sys.meta_path.insert(0, AfterImport(dict(MINDSPORE_MODULES, **{TARGET: wrap_init})))
    os.register_at_fork(after_in_child=forget_after_fork)
run_users_own()
