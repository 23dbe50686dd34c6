"""What a rank does, from several looks at it and from its Python stack. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import TypeVar

import msgspec

from doctor.engine.texts import filled
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.watch.attach.activity_text import asker_text, with_details
from doctor.watch.attach.rank_report import Frame, Kind, Look, ProcessReport

ValueT = TypeVar("ValueT")
DEFINITE: frozenset[Kind] = frozenset({"left", "stopped", "traced", "frozen", "debugger", "stdin"})
"""No rank of a healthy job is found so."""
RESTS: frozenset[Kind] = frozenset({"sleep", "blocked", "file", "child"})
"""What is no work, and no wait for other ranks."""

_COLLECTIVE = re.compile(
    r"/torch/distributed/(?!elastic/|run\.py|launch|optim/|checkpoint/)|/torch_npu/distributed/|/deepspeed/comm/"
    r"|/mindspore/(?:communication|ops/[^\n]{0,100}comm|mint/distributed)|/horovod/|/mpi4py/|/jax/experimental/multihost_utils"
    r"|/ray/util/collective/"
)
_BETWEEN_TWO = frozenset(
    {"send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list"}
)
"""Functions in which a rank waits for one other rank (pytorch.org, "Point-to-point communication")."""
_BACKWARD = frozenset({"_engine_run_backward", "synchronize"})
"""Functions within which a rank waits for a reduction of its gradients, or for its device."""
_PROGRAM = re.compile(r"/subprocess\.py$|/torch/utils/cpp_extension\.py$")
"""Where a rank runs another program, such as a compiler, or waits until another rank has: no collective around it."""
_LOADER = re.compile(r"/torch/utils/data/(?:dataloader|_utils/\w+)\.py$|/mindspore/dataset/")
GIVES = ("waits until another process takes objects from their queue",
         "waits until another process takes its messages")  # fmt: skip
BUILDS = "waits in torch's FileBaton, for the lock file of a build of extensions"
AT_KEY = "waits in a call of the job's store, for a key that is not set"
_OF_PROCESSES: tuple[tuple[re.Pattern[str], tuple[Kind, str]], ...] = (
    (re.compile(r"get /.*/multiprocessing/queues\.py$"),
     ("loader", "waits for an object in a queue of processes, as of a data loader")),
    (re.compile(r".*/multiprocessing/queues\.py$"),
     ("wait", GIVES[0])),
    (re.compile(r"send\w* /.*/zmq/"), ("wait", GIVES[1])),
    (re.compile(r"\w+ /.*/filelock/"), ("sleep", "tries again and again to lock a file")),
    (re.compile(r".*/torch/utils/file_baton\.py$"), ("collective", BUILDS)),
    (re.compile(r"\w+ /.*/lib/python3[\d.]*/queue\.py$"), ("wait", "waits for a queue that its threads share")),
    (re.compile(r".*/multiprocessing/pool\.py$"), ("wait", "waits for the results of its pool of processes")),
)  # fmt: skip
"""Function and file of the standard library, and what is said of a rank that waits there."""
RAY, _GRPC = "/ray/_private/worker.py", "/grpc/_server.py"
_CALLS = ("main_loop", "waits for results of tasks of Ray"), ("_call_behavior", "waits for a reply of gRPC")
SERVERS = dict(zip((RAY, _GRPC), _CALLS, strict=True))
"""File of a library -> its function within which another process's call is done; what is said of that process."""
AT_DEVICE = "waits for its device"
INPUT = "waits for input"
OF_THREADS = ("waits for another of its threads, as in a collective",
              "waits for another of its threads, or for a lock")  # fmt: skip
_SERVES = re.compile(r"/(?:site|dist)-packages/(?!torch/)")
"""Of a library that runs a part of a job itself, as a server does, and does not only start the program's function."""
_EVENT = "waits for an event"
_IDLE = (
    (re.compile(r"main_loop /.*/ray/_private/worker\.py$"), "waits for its next task of Ray"),
    (re.compile(r"(?:get_objects|get|wait) /.*/ray/_private/worker\.py$"), SERVERS[RAY][1]),
    (re.compile(r"(?:_blocking|_next|result) /.*/grpc/_channel\.py$"), SERVERS[_GRPC][1]),
    (re.compile(r"(?:acquire_read|dequeue) /.*/shm_broadcast\.py$"), "waits for its next batch"),
    (re.compile(r"\w+ /.*/zmq/|_?(?:recv|poll|wait)\w* /.*/multiprocessing/connection\.py$"), "waits for a message"),
    (re.compile(r"_run_once /.*/asyncio/base_events\.py$"), _EVENT),
)
"""Function and file of the innermost frames of a process that has nothing to do."""
_HOLDS_REQUEST: frozenset[Kind] = frozenset({"sleep", "blocked", "file", "child", "wait", "stdin", "debugger"})
"""In what a server does nothing for a request; at a device it may."""
_DEBUGGER = re.compile(r"(?:^|/)(?:pdb|bdb|cmd|ipdb/__main__|pudb/debugger)\.py$|debugpy/")
_SPINS = re.compile(
    r"(?:libmpi|libopen-|libpmix|mca_|libuc[mpst]|libpsm|libfabric|libhcoll|libnccl|librccl|libhccl|libhcom|libgloo"
    r"|libevent)[\w.+-]{0,60}\.so"
)
"""Libraries in which a rank that waits for others stays on its CPU."""
_DEVICE = re.compile(r"libcuda(?:rt)?\.so|libamdhip64\.so|libhsa-runtime64\.so")
"""Libraries in which a thread that waits for its device stays on its CPU (seen: cudaStreamSynchronize, CUDA 13)."""
_COMMUNICATES = re.compile(
    rf"{_SPINS.pattern}|libtorch_\w+\.so\S* (?:c10d|gloo|c10d_npu)::|_?xla_extension|libjax_common"
)
"""Library and function in which a thread that waits for others is."""
_LEAST_OF_THREADS = 0.05
"""Seconds on CPUs of all its threads within the looks, above which one of them works."""
_AWAITED = frozenset({"futex", "poll", "recv", "pause", "sleep", "read"})
_LEAST_OF_CHILDREN = 0.2
"""Seconds on CPUs of the children, or threads, that a rank waits for within the looks, above which they compute."""
_LEAST_OBJECTS = 5  # and one a second: times that a rank goes on, above which its loader gives it objects
HELPED: frozenset[Kind] = frozenset({"wait", "file", "idle"})
"""Waits that another process may end: a pool's, a server's or a compiler's, by a thread, a pipe or a socket."""
LONGEST_WAIT = 600.0
"""Seconds: the usual limit of a process group over NCCL."""
LONG_LOOK = 10.0
"""Seconds without a message, after which what one rank alone computes is no usual difference between ranks."""
_USUAL_LOOK = 5.0
"""Seconds that a look takes at most on a host that is not overloaded, unless a longer one is asked for."""
_BUSY_THREADS = 1.0
"""Seconds on CPUs of all its threads within the looks, above which a process computes."""
_OF_C = re.compile(r"libc[.-]|ld-|\[vdso\]$|libpthread")
"""What any program spends some time in, one that waits as well."""
_NOT_OF_C = re.compile(rf"(?!{_OF_C.pattern})")
_BESIDE = re.compile(rf"{_OF_C.pattern}|libm[.-]|libpython")
"""What any loop in Python spends its time in."""
_EXTENSION = re.compile(rf"(?!{_BESIDE.pattern})[^\n]*\.so(?:$|\.)")
"""Not the interpreter's code: an empty loop in Python has few values as well."""
_LEAST_SAMPLES = 8
_SWITCHES = 6.0
"""Voluntary switches a second of a main thread that does not move: a wait with a time limit wakes up now and then."""
_BUSY = 0.5
"""Part of the interval on a CPU above which a main thread computes."""
_TRANSFER = 1 << 18
"""Bytes read and written within the interval by a rank that does something with files."""


class Activity(msgspec.Struct, frozen=True):
    """What a rank does."""

    kind: Kind
    text: str
    """With its verb: ``sleeps``, ``waits in all_reduce``."""
    still: bool
    """It did the same all the time."""
    place: tuple[Frame, ...] = ()
    """Where, as far as a stack shows it, innermost first."""
    transfers: bool = False
    """It read or wrote files within the interval, or the connection that it waits for carried something."""
    spins: bool = False
    """It stays on its CPU within a library of communication."""
    turns: bool = False
    """It computes at one place, and does nothing that the kernel sees: a long computation, or a wait on its CPU."""
    unmoved: bool = False
    """Its main thread did not run at all, or not since the sleep began that it is in."""
    rests: bool = False
    """None of its threads ran, nor a process below it or that it waits for."""
    is_between_two: bool = False
    """It waits for what one other rank does, and not all of them: a message, a key."""
    works: bool = False
    """It or its children compute, and not in one and the same place: what it does may come to an end."""
    is_surely_computing: bool = False
    """Its stack or where it was sampled shows that it does not only wait on its CPU."""
    role: str = ""
    """The outermost function of the program, or of what runs it: which of the job's processes do the same work."""
    holds: float = 0.0
    """Seconds since nothing ran for a request that it has not answered and attends to no more, as far as is known; 0:
    it holds up none."""
    is_silent: bool = False
    """In a long look no message reached it or left it, and it was in a library of communication always, or never."""


def activity(rank: ProcessReport, seconds: float, store_ports: Collection[str] = ()) -> Activity:
    """What a rank did within the interval of ``seconds``. ``store_ports``: of the stores of its job."""
    if not (looks := [look for look in rank.looks if look is not None]) or not rank.alive:
        return Activity("left", "has ended", still=True)
    frames = rank.frames
    place = tuple(frames[:12])
    first, last = looks[0], looks[-1]
    still = _is_still(rank, looks, seconds)
    is_at_store = rank.awaited_end.rpartition(":")[2] in {rank.job.get("MASTER_PORT"), *store_ports}
    at_key: tuple[Kind, str] | None = ("collective", AT_KEY) if is_at_store else None
    decided = _state(rank, looks) or _by_stack(rank, looks) or at_key or _by_native_call(rank, looks)
    if decided and decided[1] == BUILDS:  # it wakes up ten times a second
        still = rank.stacks[0] == rank.stacks[-1]
    library = "" if decided else _spun_library(rank.samples, _SPINS)
    if not (decided or library) and rank.finds_the_same:  # memory that another process is to write, or a device
        library = _spun_library(rank.samples, _EXTENSION)
    in_library = bool(library) or not any(_SPINS.match(name) for name, _ in rank.samples)
    is_silent = seconds >= LONG_LOOK and rank.took_no_message and in_library
    if library:  # a wait that does not yield: whoever also sleeps has other work
        call, still = "".join(rank.native[1:]), last.switches - first.switches <= 1
        text = filled("waits in {0}, on its CPU" if call else "waits within {0}, on its CPU", call or library)
        decided, place = ("collective", text), place or ((call, "", 0),) * bool(call and is_silent)
    if not decided and (at_device := _at_device(rank)):
        decided, library = at_device, at_device[1] if at_device[0] == "collective" else ""
        still = still and all(_DEVICE.match(name) or _OF_C.match(name) for name, _ in rank.samples)
    if not decided and rank.rank is None and (idle := _idle(frames)):
        decided, still = ("idle", idle), still if idle == SERVERS[_GRPC][1] else rank.stacks[0] == rank.stacks[-1]
    kind, text = decided or _by_call(rank, looks, seconds)
    unmoved = (first.ran, first.switches) == (last.ran, last.switches)
    unmoved |= kind == "sleep" and _is_one_sleep(looks) and (first.call != last.call or rank.took_messages)
    pairs = [name for name, path, _ in frames[:10] if function_of(name) in _BETWEEN_TWO and _COLLECTIVE.search(path)]
    between = bool(pairs) or text == AT_KEY
    text = with_details(rank, kind, text, still)
    by_children = abs(rank.children_ran[-1] - rank.children_ran[0]) if rank.children_ran else 0.0
    works = _works(kind, rank, seconds, unmoved, by_children)
    has_moved = min(first.bytes, last.bytes) >= 0 and last.bytes - first.bytes >= _TRANSFER
    transfers = has_moved or last.awaited > first.awaited >= 0
    turns = kind == "compute" and still and last.switches - first.switches <= 1 and not transfers
    rests_itself = unmoved and last.all_ran - first.all_ran < _LEAST_OF_THREADS
    rests = rests_itself and by_children < _LEAST_OF_CHILDREN
    holds = _held_seconds(rank, kind, seconds) if rests or (kind == "sleep" and rests_itself) else 0.0
    if rank.requests and (holds or kind in DEFINITE):
        text = filled("{0}; {1}", text, asker_text(rank))
    outside = [sample for sample in rank.samples if _NOT_OF_C.match(sample[0])]
    return Activity(
        kind, text, still, place, transfers, bool(library), turns, unmoved, rests, between, works,
        works or (kind == "compute" and _has_part(outside, _NOT_OF_C)), _role(frames), holds, is_silent,
    )  # fmt: skip


def _held_seconds(rank: ProcessReport, kind: Kind, seconds: float) -> float:
    """Of a process at rest. Who waits for another of those looked at, or for a device, is held up itself."""
    if not rank.requests or kind not in _HOLDS_REQUEST or rank.awaits or (rank.devices and kind == "wait"):
        return 0.0
    if rank.takes_requests:  # of a thread for each connection, one that waits for an event may do so for long
        in_program = any(is_of_program(path) for _, path, _ in rank.frames[:1])
        is_in_lock = in_program and [look.call for look in rank.looks[-1:] if look] == ["futex"]
        if rank.thread in (0, rank.pid) or (kind == "wait" and not is_in_lock):
            return 0.0
    return min([since for since in (rank.requests[0][1], rank.off_cpu) if since >= 0] or [seconds])


def _works(kind: Kind, rank: ProcessReport, seconds: float, unmoved: bool, by_children: float) -> bool:
    functions = [[frame[:2] for frame in stack] for stack in rank.stacks if stack]
    if (rank.gets_results or kind in ("child", "file")) and not unmoved:
        return True  # it moved: the child, or the call, is another one by now
    looks = [look for look in rank.looks if look is not None and look.all_ran >= 0]
    by_itself = looks[-1].ran - looks[0].ran if looks and kind != "unknown" else 0.0
    by_threads = looks[-1].all_ran - looks[0].all_ran - by_itself if looks else 0.0
    if rank.finds_the_same and kind in ("compute", "collective"):  # what it looks for may be computed beside it
        return max(by_threads, by_children) > _LEAST_OF_CHILDREN
    if kind == "child":
        return by_children > _LEAST_OF_CHILDREN
    calls = [look.call for look in looks]
    shares = (kind == "wait" and calls[-1:] == ["futex"]) or (kind == "unknown" and calls and "sleep" not in calls)
    if shares and by_threads > _LEAST_OF_CHILDREN:
        return True  # for threads of its own, which share what CPU it gets; or it computes now and then itself
    if kind == "loader" and looks and looks[-1].switches - looks[0].switches > _LEAST_OBJECTS + seconds:
        return True  # one object after the other: a wait for a single one wakes up every five seconds
    if kind in (*HELPED, "loader") or (kind == "sleep" and not unmoved):
        return by_children > _BUSY * seconds  # of one that asks again and again a child may have other work
    has_changed = len(functions) > 1 and functions[0] != functions[-1]
    in_libraries = _has_part(rank.samples, _EXTENSION)  # no loop in Python's does so
    return kind == "compute" and (has_changed or in_libraries or _lacks_cpu(rank, seconds))


def _lacks_cpu(rank: ProcessReport, seconds: float) -> bool:
    """Whether it got less of a CPU than a usual look takes: what is short work elsewhere takes long so."""
    ran = [look.ran for look in rank.looks if look is not None and look.ran >= 0]
    return seconds > _USUAL_LOOK and len(ran) > 1 and ran[-1] - ran[0] < _BUSY * _USUAL_LOOK


def function_of(name: str) -> str:
    """Without its class, which newer versions of py-spy show.

    >>> function_of("Worker.main_loop")
    'main_loop'
    """
    return name.rpartition(".")[2]


def _first_match(rows: Sequence[tuple[re.Pattern[str], ValueT]], frames: Iterable[Frame]) -> ValueT | None:
    """What the first row says whose function and file one of these frames has."""
    places = [f"{function_of(name)} {path}" for name, path, _ in frames]
    return next((value for pattern, value in rows if any(map(pattern.match, places))), None)


def _idle(frames: list[Frame]) -> str | None:
    """What is said of a process that rests within a library, above the program's own frames."""
    return _first_match(_IDLE, takewhile(lambda frame: not is_of_program(frame[1]), frames))


def _role(frames: list[Frame]) -> str:
    for file, (function, _) in SERVERS.items():
        if any(path.endswith(file) and function_of(name) == function for name, path, _ in frames):
            return file
    named = [(name, path) for name, path, _ in frames if name != "<module>"]
    return next((name for name, path in reversed(named) if is_of_program(path) or _SERVES.search(path)), "")


def _at_device(rank: ProcessReport) -> tuple[Kind, str] | None:
    """A wait for its device: for what that computes, or for a collective whose bytes another thread moves."""
    if not _spun_library(rank.samples, _DEVICE):
        return None
    for samples in rank.beside:  # a thread that is in the kernel for most of the time
        if library := _spun_library(samples, _SPINS, 1):
            return "collective", filled("waits for its device, for a collective of {0}", library)
    return "device", AT_DEVICE


def _spun_library(samples: Sequence[tuple[str, int]], kind: re.Pattern[str], least: int = _LEAST_SAMPLES) -> str:
    """The library of this kind in which a thread spent its CPU time, if in no other code."""
    libraries = [(name, count) for name, count in samples if not _OF_C.match(name)]
    sampled = sum(count for _, count in samples)
    elsewhere = sum(count for name, count in libraries if not kind.match(name))
    return libraries[0][0] if libraries and sampled >= least and elsewhere * 50 <= sampled else ""


def _has_part(samples: Sequence[tuple[str, int]], counts: re.Pattern[str]) -> bool:
    """Whether a good part of its CPU time goes into what counts of other code than libraries of communication."""
    sampled = sum(count for _, count in samples)
    part = sum(count for name, count in samples if counts.match(name) and not _SPINS.match(name))
    return sampled >= _LEAST_SAMPLES and part * 10 >= sampled


def _by_native_call(rank: ProcessReport, looks: list[Look]) -> tuple[Kind, str] | None:
    """A wait in a library of communication that the stack of Python does not show, as ``Work.wait`` of an asynchronous
    collective. Where other threads compute, it may wait for them.
    """
    library, function = (*rank.native, "", "")[:2]
    waits = looks[-1].call in _AWAITED and looks[-1].all_ran - looks[0].all_ran <= _BUSY_THREADS
    if not (rank.frames and waits and _COMMUNICATES.match(f"{library} {function}")):
        return None
    return "collective", filled("waits in {0}", function) if function else filled("waits within {0}", library)


def _state(rank: ProcessReport, looks: list[Look]) -> tuple[Kind, str] | None:
    states = [look.state for look in looks]
    if rank.frozen:
        return "frozen", "is frozen (docker pause, the cgroup freezer)"
    if all(state in "Tt" for state in states[1:]):
        if rank.tracer:
            return "traced", filled("is stopped by a debugger (pid {0})", rank.tracer)
        return "stopped", filled("is stopped: kill -CONT {0} continues it", rank.pid)
    if all(state == "D" for state in states) and len({look.wchan for look in looks}) == 1:
        wchan = f" ({looks[-1].wchan})" if looks[-1].wchan else ""
        return "blocked", filled(
            "is in an uninterruptible wait of the kernel{0}, as for a file system or a device", wchan
        )
    return None


def _by_stack(rank: ProcessReport, looks: list[Look]) -> tuple[Kind, str] | None:
    if not (frames := rank.frames):
        return None
    if any(_DEBUGGER.search(file) for _, file, _ in frames[:12]):
        return "debugger", "waits in a debugger for a command"
    calls = list(takewhile(lambda frame: not _PROGRAM.search(frame[1]), frames[:10]))
    program_at = next((number for number, frame in enumerate(calls) if is_of_program(frame[1])), len(calls))
    for number, (name, path, _) in enumerate(calls):
        if _LOADER.search(path) and number < program_at:  # else the program's data set is read in this process
            return "loader", "waits for its data loader"
        if _COLLECTIVE.search(path):
            return "collective", filled("waits in {0}", _operation(frames))
        in_hook = number > program_at and rank.native[:1] == [""]  # the interpreter waits, in a function of the program
        if function_of(name) in _BACKWARD and "/torch/" in path and looks[-1].call != "running" and not in_hook:
            return "collective", filled("waits in {0}", "backward" if name.startswith("_eng") else name)
    return _first_match(_OF_PROCESSES, calls)


def _by_call(rank: ProcessReport, looks: list[Look], seconds: float) -> tuple[Kind, str]:
    last, ran = looks[-1], looks[-1].ran - looks[0].ran
    same = {(look.call, look.file) for look in looks}
    computes = "looks at the same again and again, on its CPU" if rank.finds_the_same else "computes"
    if ran > _BUSY * seconds:
        return "compute", computes
    if len(same) > 1 and not _is_one_sleep(looks):
        calls = {look.call for look in looks} - {"?"}
        moves = filled("sleeps again and again, as one that polls") if "sleep" in calls else "moves"
        return "unknown", moves if calls else "is not readable"
    kinds: dict[str, tuple[Kind, str]] = {
        "running": ("compute", computes),
        "sleep": ("sleep", "sleeps"),
        "wait": ("child", "waits for a child process"),
        "futex": ("wait", OF_THREADS[bool(rank.frames) or rank.native[:1] == [""]]),
        "poll": ("wait", _input(rank)),
        "pause": ("sleep", "waits for a signal"),
    }
    if last.call == "read" and last.file.startswith(("stdin ", "/dev/pts/", "/dev/tty")):
        return "stdin", "waits for input from stdin"
    if all(look.deadlocked for look in looks):
        return "blocked", filled("is deadlocked over a mutex that its thread {0} holds", last.holder)
    if last.call in kinds:
        kind, text = kinds[last.call]
        return kind, filled("{0}: thread {1} holds its mutex", text, last.holder) if last.holder else text
    if last.call == "recv" and last.file.endswith("socket"):
        bare = "waits for bytes from a socket, as of the job's store"
        return "wait", filled("waits for bytes from {0}", rank.awaited_end) if rank.awaited_end else bare
    if last.call in ("read", "write", "open", "lock", "sync", "stat", "recv", "accept", "connect", "page fault"):
        return "file", filled("is blocked in {0} of {1}", last.call, last.file) if last.file else filled(
            "is blocked in {0}", last.call
        )
    return "unknown", filled("is in {0}", last.call) if last.call != "?" else "cannot be read"


def _input(rank: ProcessReport) -> str:
    if rank.awaited_end:
        return filled("waits for input from {0}", rank.awaited_end)
    return "waits for input or an event of asyncio" if _idle(rank.frames) == _EVENT else INPUT


def _is_one_sleep(looks: Sequence[Look]) -> bool:
    """It has not woken up since the last look but one."""
    return [(look.call, look.switches) for look in looks[-2:]] == [("sleep", looks[-1].switches)] * 2


def _is_still(rank: ProcessReport, looks: list[Look], seconds: float) -> bool:
    """Whether its main thread did not move: the same call, the same stack, and hardly a switch."""
    if len(looks) < 2 or len({(look.call, look.file) for look in looks}) > 1:
        return False
    stacks = [stack for stack in rank.stacks if stack]
    if len(stacks) > 1 and stacks[0] != stacks[-1]:
        return False
    first, last = looks[0], looks[-1]
    return min(first.switches, last.switches) < 0 or last.switches - first.switches <= _SWITCHES * max(seconds, 1)


def _operation(frames: list[Frame]) -> str:
    """The outermost function of the library, which is the one that the program calls."""
    inside = [
        name
        for name, path, _ in frames
        if _COLLECTIVE.search(path) and function_of(name) not in ("wrapper", "<module>")
    ]
    return inside[-1] if inside else "a collective"
