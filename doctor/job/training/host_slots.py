"""How many ranks the hosts of DeepSpeed and Open MPI take, by hostfiles and launch lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter

import msgspec

from doctor.engine.sanitize import printable
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.launch_line import LaunchCall, LaunchLine
from doctor.job.launch_line.call_parts import HOSTS_OF_SCHEDULER, fills_in_order
from doctor.job.training.model import Setting

ReadFile = Callable[[str], "str | None"]
"""The text of a file that a launch line names, by its path as written; None where it cannot be read here."""
Place = Callable[[str], str]
_CHOOSE = ("include", "exclude", "num-nodes", "num-gpus", "options")
"""What takes fewer ranks of DeepSpeed than the hostfile has slots."""
MAX_HOSTFILE = 1 << 20
"""Characters of a hostfile that are read."""


def slots_of(line: LaunchLine, own_slots: Setting | None, place: Place, read_file: ReadFile) -> dict[str, Setting]:
    """The fewest slots of a host in the hostfile that deepspeed's line names; all slots of that of mpirun.

    ``own_slots``: those that a manifest or a scheduler gives; ``place``: where the script has an option.
    Of mpirun around a launcher that starts once on each host: those of its first host, which it fills before the next.
    """
    call = line.innermost
    outer = line.launchers[-2] if len(line.launchers) > 1 else None
    if call and outer and call.launcher in ONE_ON_EACH_HOST and (line.nodes or 0) > 1:
        in_order = outer.ranks_per_node is None and fills_in_order(outer)
        counts = [] if not in_order else _of_openmpi(outer, line, read_file)
        tasks = Setting("-np", outer.ranks, place("np"))
        return {"first_slots": counts[0], "outer_tasks": tasks} if counts and outer.ranks else {}
    is_given = call is not None and (call.hosts or call.hostfile or _oversubscribes(call, line))
    if own_slots and (own_slots.option == "devices" or not is_given):
        return {"all_slots": msgspec.structs.replace(own_slots, where=own_slots.where or place("ntasks-per-node"))}
    if call is not None and call.launcher in ("deepspeed", "colossalai") and call.hostfile:
        return _of_deepspeed(call, _entries(call, read_file), place)
    counts = _of_openmpi(call, line, read_file) if call else []
    total = sum(int(str(count.value)) for count in counts)
    return {"all_slots": Setting("slots", total, counts[0].where)} if counts else {}


def _entries(call: LaunchCall, read_file: ReadFile) -> list[tuple[int, str]]:
    """Of its hostfile, with the number of the line."""
    lines = enumerate((read_file(call.hostfile) or "")[:MAX_HOSTFILE].splitlines(), 1)
    return [(number, text.strip()) for number, text in lines if text.strip() and text.lstrip()[0] != "#"]


def _of_openmpi(call: LaunchCall, line: LaunchLine, read_file: ReadFile) -> list[Setting]:
    """The slots of each host of mpirun, where it takes no more than these; empty: they do not all say them."""
    listed = call.option({"openmpi": "host", "horovodrun": "hosts"}.get(call.launcher, ""))
    if call.launcher not in ("openmpi", "horovodrun") or _oversubscribes(call, line) or (listed and call.hostfile):
        return []
    if listed:
        texts = [("--host", host.replace(":", " slots=")) for host in listed.split(",") if "[" not in host]
    else:
        texts = [(f"{call.hostfile}:{number}", text) for number, text in _entries(call, read_file) if call.hostfile]
    matches = [(re.search(r"\sslots *= *([0-9]{1,5})\b", text, re.ASCII), where) for where, text in texts]
    counts = [Setting("slots", int(match[1]), where) for match, where in matches if match]
    return counts if len(counts) == len(texts) else []


def _of_deepspeed(call: LaunchCall, entries: Sequence[tuple[int, str]], place_of: Place) -> dict[str, Setting]:
    """What the entries of its hostfile say: ranks, and the first entry or choice that it or colossalai refuses.

    Source: DeepSpeed, launcher/runner.py, ``parse_resource_filter``; ColossalAI, launcher/run.py, ``fetch_hostfile``.
    """
    separator, entry = ("@", r"(\S+)\s+slots=([0-9]{1,6})") if call.launcher == "deepspeed" else (",", "(.+)()")
    slots: dict[str, tuple[int, str]] = {}
    for number, text in entries:
        match, place = re.match(entry, text, re.ASCII), f"{call.hostfile}:{number}"
        if match is None or match[1] in slots:
            return {"bad_entry": Setting("entry", printable(text, 80), place)}
        slots[match[1]] = (int(match[2] or 0), place)
    for name in ("include", "exclude"):
        for host in call.option(name).split(separator) if slots else ():
            named, _, numbers = host.partition(":")
            count = slots.get(named, (0, ""))[0]
            beyond = [number for number in numbers.split(",") if number.isdecimal() and int(number[:6]) >= count > 0]
            if named and (named not in slots or beyond):
                return {"bad_entry": Setting(f"--{name}", printable(host, 80), place_of(name))}
    least, place = min(slots.values(), key=itemgetter(0), default=(0, ""))
    settings = {"slots": Setting("slots", least, place)} if least else {}
    if call.nodes and len(slots) < call.nodes and not call.hosts:
        settings["listed_hosts"] = Setting("hosts", len(slots), place)
    is_open = any("$" in call.unresolved.get(name, "") for name in _CHOOSE)
    if least and not is_open and not any(name in call.options for name in _CHOOSE):
        _, first = next(iter(slots.values()))
        settings["nodes"] = Setting("hosts", len(slots), first)
        settings["world_size"] = Setting("slots", sum(count for count, _ in slots.values()), first)
        if len({count for count, _ in slots.values()}) == 1:
            settings["ranks_per_node"] = Setting("slots", least, first)
    return settings


def _oversubscribes(call: LaunchCall, line: LaunchLine) -> bool:
    """More ranks than slots may be wanted, or slots may come from elsewhere; also where that is not known."""
    hostfile = HOSTS_OF_SCHEDULER.sub("", call.unresolved.get("hostfile", ""))
    if hostfile or call.unresolved.keys() & {"options", "map-by"}:
        return True
    options = ("oversubscribe", "use-hwthread-cpus", "rankfile", "set-dist", "tune", "am")
    parameters = " ".join(call.options.get("mca", ()))
    if re.search(r"rmaps|hwloc|hostfile|prte|oversubscribe", parameters):
        return True
    text = call.option("map-by").lower() + " ".join(name for name in line.environ if "oversubscribe" in name)
    return "oversubscribe" in text or any(option in call.options for option in options)
