"""Reads a host's ranks, and prints one record of what each does."""

import base64
import json
import os
import socket
import time
import zlib

from doctor.remote.runtime.framing import marked_line
from doctor.remote.runtime.rank_place import host_place, process_place
from doctor.remote.runtime.readable_json import strict_json
from doctor.remote.runtime.signals import on_termination
from doctor.remote.runtime.streams import write_all
from doctor.smoke.programs.agent.file_wait import awaited_path, file_wait, held_up_beside, seconds_off_cpu
from doctor.smoke.programs.agent.kernel import is_frozen
from doctor.smoke.programs.agent.network import bytes_by_owner, socket_bytes, socket_owners, tcp_sockets
from doctor.smoke.programs.agent.procfs import process_status
from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.inspector.awaited_processes import Helpers, far_end, files_of, holders, lock_owners, other_ends
from doctor.watch.attach.inspector.connected import shared_sum
from doctor.watch.attach.inspector.native_calls import native_calls
from doctor.watch.attach.inspector.open_requests import (
    accepting_ports,
    asked_times,
    lasting_requests,
    left_requests,
    owes_no_answer,
    takes_requests,
)
from doctor.watch.attach.inspector.polled import (
    REGISTERS,
    last_place,
    most_values,
    polled,
    sampled_files,
    start_samples,
)
from doctor.watch.attach.inspector.python_stacks import (
    LATE,
    find_py_spy,
    frames_with_locals,
    rank_in_locals,
    signal_number,
    signalled_stacks,
    spied_stacks,
)
from doctor.watch.attach.inspector.rank_finder import (
    asked_ranks,
    find_ranks,
    held_devices,
    hidden_pythons,
    job_of,
    owner_name,
    shown_variables,
    task_of,
)
from doctor.watch.attach.inspector.rank_state import (
    children_of,
    descendants_ran,
    ends_in,
    look,
    process_name,
    ptrace_scope,
    running_threads,
    sleeps_for,
    status_number,
)
from doctor.watch.attach.inspector.recordings import heartbeat_logs, ras_addresses, ras_answer, recorder_dumps

LOOKS = 3
FILLED = ("ports", "children", "children_ran", "looks", "tcp", "shared", "stacks")  # by each look
NATIVE_SECONDS = 5.0
SUM_SECONDS = 1.0  # of each look, for memory that processes share
MOST_DUMPS = 256
MOST_COUNTED = 32  # each takes a tenth of a second and more


def stop(*_):
    """Ends the program: the caller has stopped waiting for it."""
    os._exit(3)


def described(entry):
    """What does not change of a rank."""
    pid, environ = entry["pid"], entry["environ"]
    rank = entry["rank"]
    process = {
        "pid": pid,
        "thread": pid,  # whose work is looked at
        "rank": rank[0] if rank else None,
        "world": rank[1] if rank else 0,
        "job": job_of(environ),
        "variables": shown_variables(environ),
        "user": owner_name(pid),
        "group": entry["group"],
        "links": entry["links"][:64],
        "task": task_of(entry["words"]),
        "stores": entry["stores"][:4],
        "devices": held_devices(pid)[:64],
        "tracer": status_number(pid, "TracerPid"),
        "frozen": is_frozen(pid, (process_status(pid) or "?")[0]),
        "gets_results": False,
        "main_switches": 0,
        "problem": "",
        "dumps": recorder_dumps(pid, rank[0], environ) if rank else [],
        "heartbeat_logs": heartbeat_logs(pid, environ),
        "place": rank_place(pid),
    }
    return dict(process, **dict((name, []) for name in FILLED))


def dumps_of(ranks):
    """The dumps that these may have written."""
    named = [entry for entry in ranks if entry["rank"]]
    paths = [path for entry in named for path in recorder_dumps(entry["pid"], entry["rank"][0], entry["environ"])]
    return sorted(set(paths))[:MOST_DUMPS]


def rank_place(pid):
    """Where it may run: lists of CPUs, of those permitted, and of the nodes of its memory."""
    place = process_place(pid)
    return [place["cpus"], place["permitted"], place["memory_nodes"]]


def set_file_waits(ranks):
    """What each rank and its children wait for in a file system, or from which of the ranks, at the last look.

    Returns: the first, by pid, of the ranks that wait so.
    """
    waits = dict((entry["pid"], file_wait(entry["thread"])) for entry in ranks)
    files = files_of(waits)
    labels = dict((entry["pid"], ", rank %d" % entry["rank"]) for entry in ranks if entry["rank"] is not None)
    for entry in ranks:
        entry["awaits"] = [pid for pid in holders(other_ends(entry["pid"]), lambda: files) if pid != entry["pid"]][:16]
        entry["lock_owners"] = [[pid, process_name(pid) + labels.get(pid, "")] for pid in lock_owners(entry["pid"])[:4]]
        entry["file_wait"], entry["far_end"] = waits[entry["pid"]], far_end(entry["pid"], entry["thread"])
        entry["children"] = [
            [child, state, call, awaited_path(child) or file] for child, state, call, file in children_of(entry["pid"])
        ]
    return dict((pid, wait) for pid, wait in waits.items() if wait)


def look_repeatedly(ranks, spy, interval, stack_seconds):
    """Adds to each rank what it does at each of the looks, and its stack before and after them, if py-spy is there.

    Returns: the seconds from the first look to the last.
    """
    pids = [entry["pid"] for entry in ranks]
    if spy:
        add_stacks(ranks, spy, time.monotonic() + stack_seconds)
    helpers = Helpers(dict((entry["pid"], entry["job"]) for entry in ranks))
    others = dict((entry["pid"], running_threads(entry["pid"])) for entry in ranks)
    threads = [entry["thread"] for entry in ranks] + [thread for entry in ranks for thread in others[entry["pid"]]]
    sampled = [start_samples(threads, seconds) for seconds in (interval, 0)]
    samples = dict((thread, [buffers[thread] for buffers in sampled if thread in buffers]) for thread in threads)
    registers, first = [start_samples(threads, seconds, REGISTERS) for seconds in (interval, 0)]
    times = asked_times() if pids else {}
    requests = dict(
        (entry["pid"], left_requests(entry["pid"], times) if entry["rank"] is None else {}) for entry in ranks
    )
    began = time.monotonic()
    for number in range(LOOKS):
        time.sleep(max(0.0, began + interval * number / (LOOKS - 1) - time.monotonic()))
        add_look(ranks, number, helpers)
    took = time.monotonic() - began
    if spy:  # what moves has another stack then
        add_stacks(ranks, spy, time.monotonic() + stack_seconds)
    times = asked_times() if any(requests.values()) or any(entry["ports"] for entry in ranks) else {}
    both = dict((thread, [rows[thread] for rows in (first, registers) if thread in rows]) for thread in threads)
    calls = native_calls(dict((each, last_place(both[each])) for each in threads[: len(ranks)]), NATIVE_SECONDS)
    for entry in ranks:
        entry["ends_in"] = ends_in(entry["pid"], entry["thread"])
        entry["sleeps_for"] = sleeps_for(entry["pid"], entry["thread"], helpers.awaited(entry["pid"]))
        entry["answering"] = helpers.names(entry["pid"])
        entry["requests"] = lasting_requests(entry["pid"], requests[entry["pid"]], times)
        entry["takes_requests"] = bool(entry["requests"]) and takes_requests(entry["pid"])
        ports, _ = entry.pop("ports"), entry.pop("main_switches")
        entry["awaits_request"] = bool(ports) and owes_no_answer(entry["pid"], ports, times)
        entry["off_cpu"] = seconds_off_cpu(entry["thread"])
        entry["native"] = calls.get(entry["thread"], [])
        maps = memory_maps(entry["pid"])
        entry["samples"] = sampled_files(samples[entry["thread"]], maps)
        running = [entry["thread"]] + others[entry["pid"]]
        entry["register_values"] = most_values([both[thread] for thread in running if thread in registers])
        entry["beside"] = [sampled_files(samples[other], maps) for other in others[entry["pid"]]]
    return took


def add_look(ranks, number, helpers):
    """Adds to each rank what it does at look ``number``, and what it has sent, received and shared until then."""
    pids = [entry["pid"] for entry in ranks]
    by_socket = socket_bytes() if pids else {}
    carried, sums = bytes_by_owner(socket_owners(pids), by_socket), {}
    until = time.monotonic() + SUM_SECONDS
    for entry in ranks:
        add_look_at(entry, by_socket)
        call = (entry["looks"][-1] or {}).get("call")
        if number in (0, LOOKS - 1):
            ran = descendants_ran(entry["pid"])
            entry["children_ran"].append(ran + (helpers.ran(entry["pid"], call) if number else 0.0))
        if not entry["ports"]:  # at one of the looks: an event loop runs now and then
            entry["ports"] += accepting_ports(entry["pid"])
        entry["tcp"].append(carried.get(entry["pid"], -1))
        entry["shared"].append(shared_sum(entry["pid"], memory_maps(entry["pid"]), by_socket, sums, until))


def add_look_at(entry, by_socket):
    """Of the thread that works; where that has ended, of the main one, which waited for it."""
    state, switches = look(entry["thread"], by_socket), status_number(entry["pid"], "voluntary_ctxt_switches")
    if entry["thread"] != entry["pid"]:
        entry["gets_results"] |= not state or bool(entry["looks"] and switches != entry["main_switches"])
        state = state or look(entry["pid"], by_socket)
    entry["main_switches"] = switches
    entry["looks"].append(state)


def add_stacks(ranks, spy, deadline):
    """Adds a stack to each rank, and which of its threads has it. A process that is stopped shows its stack as well.

    One for which the time was not enough at first is not tried again.
    """
    stacks, problems = spied_stacks([entry["pid"] for entry in ranks if entry["problem"] != LATE], spy, deadline)
    for entry in ranks:
        thread, frames = stacks.get(entry["pid"], (entry["pid"], []))
        entry["thread"] = entry["thread"] if entry["looks"] else thread
        entry["stacks"].append(frames)
        entry["problem"] = LATE if entry["problem"] == LATE else problems.get(entry["pid"], "")


def wakes_up(entry):
    """Whether its main thread sleeps now and then, or has a wait with a limit."""
    looks = [state for state in entry["looks"] if state]
    return any(state["call"] == "sleep" for state in looks) or len(set(state["switches"] for state in looks)) > 1


def set_signalled_stacks(ranks, number):
    """Asks for stacks by a signal, where none were read; 0: by none."""
    stacks = signalled_stacks([entry["pid"] for entry in ranks], number) if number else {}
    for entry in ranks if number else ():
        if not any(entry["stacks"]):
            entry["stacks"] = [stacks.get(entry["pid"], [])]


def main(request, program):
    """Looks at the ranks `LOOKS` times within the interval; prints the record, and exits with 0."""
    request = json.loads(request.decode("ascii"))
    on_termination(stop)
    write_all(1, b"\n")
    every = find_ranks([]) if request["pids"] else []
    asked = asked_ranks(request["pids"], every)
    rank_entries = find_ranks(sorted(set(sum(asked.values(), []))))
    addresses = ras_addresses([entry["environ"] for entry in rank_entries])
    ranks, pids = [described(entry) for entry in rank_entries], [entry["pid"] for entry in rank_entries]
    spy = find_py_spy(pids, request["py_spy"]) if request["stacks"] else ""
    ras = ras_answer(addresses) if any("/dev/nvidia" in path for entry in ranks for path in entry["devices"]) else ""
    took = look_repeatedly(ranks, spy, request["interval"], request["stack_seconds"])
    held_up_beside(set_file_waits(ranks))
    until = time.monotonic() + request["stack_seconds"]
    ends = [row[2:4] for row in tcp_sockets(pids) if row[1]]
    local = bool(ends) and all(near[0] == peer[0] for near, peer in ends)  # no rank runs on another host
    for entry in [each for each in ranks if each["rank"] is None or wakes_up(each)][:MOST_COUNTED] if spy else ():
        frames = frames_with_locals(entry["pid"], spy, until)
        entry["argument"] = rank_in_locals(frames) if entry["rank"] is None else None
        entry["polled"] = polled(entry["pid"], frames, local) if wakes_up(entry) else None
    set_signalled_stacks(ranks, signal_number(request["signal"]))
    beside = [entry for entry in every if entry["pid"] not in pids]
    record = {
        "ras": ras + (ras_answer(addresses) if ras else ""),  # two: what differs in passing is no fault
        "host": socket.gethostname()[:200],
        "seconds": took,
        "py_spy": bool(spy),
        "local": local,
        "ranks": ranks,
        "root": os.geteuid() == 0,
        "hidden": hidden_pythons(request["pids"]),
        "beside": [entry["pid"] for entry in beside],
        "beside_dumps": dumps_of(beside),
        "ptrace_scope": ptrace_scope(),
        "place": host_place() if ranks else None,
        "not_found": [pid for pid, meant in asked.items() if not set(meant).intersection(pids)],
    }
    data = base64.b64encode(zlib.compress(strict_json(json.dumps(record).encode("ascii")), 6))
    write_all(1, marked_line(request["marker"].encode("ascii"), data))
    os._exit(0)
