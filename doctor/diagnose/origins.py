"""Which host the output in a log is from, where it is known on which host the log lies."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from doctor.diagnose.events import Event, FileSummary
from doctor.diagnose.read.file_names import NameHints


def own_logs(summaries: Sequence[FileSummary], names: Sequence[NameHints]) -> set[int]:
    """The files that hold the output of processes of the host on which they lie.

    A launcher's file holds the output of all hosts. So may one whose name is that of no process, unless each host has
    one of its own, or there is only one host.
    """
    origins: dict[str, set[str]] = defaultdict(set)
    for summary in summaries:
        if summary.origin:
            origins[summary.name.partition(":")[2]].add(summary.origin)
            origins[""].add(summary.origin)
    indexes = set()
    for index, (summary, hints) in enumerate(zip(summaries, names, strict=True)):
        named = hints.pid or not (hints.rank is hints.local_rank is hints.device is None)
        each = len(origins[summary.name.partition(":")[2]]) > 1 or len(origins[""]) == 1
        if not summary.origin or named or (each and not hints.launcher):
            indexes.add(index)
    return indexes


def host_of(origin: str, hints: NameHints, events: list[Event]) -> str:
    """As lines show it; their addresses say less than the host on which the file was read."""
    host = next((event.host for event in events if event.host), "")
    if origin and not re.search("[A-Za-z]", host):
        return origin
    return host or hints.host
