"""Process groups: their numbers in this rank's page, their names and ranks."""

from __future__ import annotations

import sys

from doctor.watch.hook.rank_files import recording


class Groups:
    """Numbers process groups in the order in which this rank first uses them; the reader renumbers them by name."""

    def __init__(self, c10d):
        self.c10d = c10d
        self.numbered = {}  # name of the group -> (number, its global ranks)

    def number(self, group):
        """Number and global ranks of a process group."""
        name = group.group_name
        numbered = self.numbered.get(name)
        if numbered is None:
            ranks = self.ranks(group)
            numbered = self.numbered[name] = (len(self.numbered), ranks)
            recording().emit(
                "group",
                gid=numbered[0],
                name=str(name)[:200],
                desc=self.description(group),
                ranks=ranks,
                timeout=self.timeout(group),
            )
        return numbered

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
