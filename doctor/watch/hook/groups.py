"""Process groups: their numbers in this rank's page, their names and ranks."""

from __future__ import annotations

import functools
import inspect
import sys

from doctor.remote.runtime.host_texts import filled
from doctor.watch.hook.rank_files import recording, stop_recording


class Groups:
    """Numbers process groups in the order in which this rank first uses them; the reader renumbers them by name."""

    def __init__(self, c10d):
        self.c10d = c10d
        self.numbered = {}  # name of the group -> (number, its global ranks)

    def number(self, group):
        """Number and global ranks of a process group."""
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
