"""A collective that stalls although no link is known to lose packets: which rank is the likely culprit. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from doctor.analysis.collectives.waits import ONE_WAY, PAIRED, ROOTED, TO_ROOT
from doctor.analysis.file_waits import FileWait
from doctor.engine.sanitize import printable, rank_names, strip_control_chars
from doctor.engine.texts import filled
from doctor.remote.runtime.kernel_waits import kernel_wait
from doctor.remote.runtime.stack_frames import without_own_frames
from doctor.smoke.model import Failure, FailureKind, Snapshot

WRONG_SIZE = "Received data size doesn't match expected size"
"""Of gloo's error (gloo/transport/tcp/pair.cc) before it aborts the process."""
LENGTHS = re.compile(r"\b(?P<received>\d{1,15}) vs (?P<expected>\d{1,15})\. Received data size")
"""Of the same error: bytes of the message that came, and of the one that the rank meant to receive."""
ELEMENT_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
MAX_PIECE = 1 << 20
"""Bytes (gloo/allreduce.h, kMaxSegmentSize)."""
NOT_THE_PROGRAM = re.compile(r"[/\\](torch|torch_npu|mindspore)[/\\]|^(worker/|<doctor)")
"""Files in which a rank that waits in a collective may be."""
ANYBODYS = re.compile(
    r"^<(frozen |string>|stdin>)|[/\\](threading|socket|selectors)\.py$"
    r"|[/\\]torch[/\\](?!(distributed|cuda|accelerator|autograd)[/\\]|_ops\.py|_tensor\.py)"
)
"""Files whose caller tells: parts of the library and of torch that wait for no rank, and text that was executed."""
COLLECTIVES = re.compile(r"[/\\](torch|torch_npu)[/\\]distributed[/\\](distributed_c10d|c10d_logger)\.py$")
COLLECTIVE = re.compile(
    r"(?P<operation>all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|reduce|gather|scatter|barrier|send|recv|"
    r"new_group)(_into_tensor|_tensor|_single|_coalesced|_object|_object_list)?$"
)
"""Functions of torch.distributed, and the collective that each makes, or the group. Source: pytorch
distributed_c10d.py."""
THREAD = re.compile(r"Thread 0x")
OURS = ("worker/", "<doctor")
IMPORT = '"<frozen importlib._bootstrap'
"""Of frames of an import: what hooks it, or runs in it, is slow at worst."""
LONGEST_STACK = 4000
MAX_FILE_WAITS = 4
RUNNING = "running"
"""Stands for the function of the kernel of a main thread that sleeps in none."""
LEAST_RUN, MOSTLY = 1.0, 0.5
"""Seconds on a CPU, and their share of what it could have had, from which on it ran most of the time."""
FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9}) in (?P<name>.{1,200})$')


def explain_standstill(failure: Failure, finished: Iterable[int], checked: bool) -> Failure:
    """A failure of kind ``network``, as what it is where no socket and no connection shows a broken link.

    ``finished``: ranks that are out of the collective, of one from a root that rank alone; ``checked``: whether new
    connections were tried between hosts.
    """
    early = tuple(sorted(finished))
    blocked = tuple(rank for rank in failure.culprit_ranks if rank not in early)
    if early and blocked and failure.op not in TO_ROOT | {"send"}:
        return _blame_fewest(failure, early, blocked)
    answered = ", and every new connection is answered" if checked else ""
    observed = filled("no connection sends anything again{0}", answered)
    evidence = (*failure.evidence, filled("Nothing speaks against any host: {0}.", observed))
    return failure.blaming((), text="the cause is not known", evidence=evidence)


def foreign_calls(failure: Failure) -> dict[int, str]:
    """By rank, of those that it names or that wait: the innermost call, where that is not torch's."""
    return {rank: frame for rank in failure.concerned if (frame := foreign_frame(failure.stacks.get(rank, "")))}


def occupations(snaps: Sequence[Snapshot], backend: str = "gloo") -> dict[int, str]:
    """By rank: the function of the kernel that its main thread sleeps in, `RUNNING` for one that ran most of the time.

    Over gloo, whoever waits for another rank sleeps; over another ``backend`` it may run.
    """
    asleep = {snap.rank: snap.waits_for for snap in snaps if snap.process in ("S", "D")}
    if backend != "gloo":
        return asleep
    return {snap.rank: RUNNING for snap in snaps if snap.cpu > max(LEAST_RUN, MOSTLY * snap.effective)} | asleep


def sleeping_apart(failure: Failure, occupied: Mapping[int, str]) -> dict[int, str]:
    """By rank, of those that it names or that wait: what its main thread does, where that waits for no other rank.

    ``occupied``: as `occupations` returns. Whoever runs an import is slow at worst.
    """
    ranks = [rank for rank in failure.concerned if rank in occupied]
    return {
        rank: occupied[rank]
        for rank in ranks
        if kernel_wait(occupied[rank]) or (occupied[rank] == RUNNING and IMPORT not in failure.stacks.get(rank, IMPORT))
    }


def busy_elsewhere(failure: Failure, occupied: Mapping[int, str]) -> Failure | None:
    """A failure of ranks that are late to join, laid at those within a call that is neither torch's nor an import, or
    who alone sleep in a function of the kernel that waits for no other rank, such as a name lookup that reads a pipe.
    """
    if foreign := foreign_calls(failure):
        text = filled("{0}: at {1}, which is not torch", failure.text, next(iter(foreign.values())))
        return blame(failure, failure.kind, foreign, text)
    asleep = sleeping_apart(failure, occupied)
    if not 0 < len(asleep) < len(failure.concerned):
        return None
    text = filled("{0}: {1}", failure.text, sleep_text(next(iter(asleep.values()))))
    return blame(failure, failure.kind, asleep, text)


def sleep_text(function: str) -> str:
    """What a rank sleeps in, and what that waits for; or that it runs.

    >>> sleep_text("p9_client_rpc")
    'asleep in p9_client_rpc of the kernel, which waits for the host of its virtual machine, for a file (9P)'
    """
    if function == RUNNING:
        return "the CPU computes all the time, where a rank that waits for another one sleeps"
    wait = kernel_wait(function)
    return filled("asleep in {0} of the kernel, which waits for {1}", function, wait[1] if wait else "no other rank")


def held_by_files(failure: Failure, hosts: Iterable[tuple[str, Mapping[int, FileWait]]]) -> Failure:
    """The failure with the files that processes are held up by; ``hosts``: name, and by rank what it waits for.

    The rank -1 is the process that all ranks of the host come from. Where nothing else tells what the ranks do that the
    failure names, that is its text.
    """
    waits = [(host, rank, file_wait_text(wait)) for host, by_rank in hosts for rank, wait in by_rank.items()]
    waits.sort(key=lambda row: row[1] not in failure.culprit_ranks)
    sentences = [
        filled("{0}: {1} {2}", host, rank_names([rank]) if rank >= 0 else "its interpreter", text)
        for host, rank, text in waits
    ]
    alone = len(failure.culprit_ranks) == 1
    named = next(
        (
            filled("it {0}", text) if alone else filled("{0} {1}", rank_names([rank]), text)
            for _, rank, text in waits
            if rank in failure.culprit_ranks
        ),
        "",
    )
    text = failure.text or named
    return msgspec.structs.replace(failure, text=text, evidence=(*failure.evidence, *sentences[:MAX_FILE_WAITS]))


def file_wait_text(wait: FileWait) -> str:
    """What a process does that a file system holds up, and what that waits for.

    >>> file_wait_text(FileWait("/d/a", ["/d", "nfs4", "nas:/d"], 9.0, [], "open", "rpc_wait_bit_killable"))
    'is blocked in open of /d/a on /d (nfs4, nas:/d) for 9 s, and waits for the server of a file system (NFS)'
    """
    texts = [printable(text, 300) for text in (wait.path, *wait.mount[:3])]
    others = [(pid, printable(name, 40)) for pid, name in wait.beside[:16]]
    shown = FileWait(texts[0], texts[1:], wait.seconds, others)
    awaited = kernel_wait(wait.function)
    blocked = filled("is blocked in {0}{1}", printable(wait.call, 40) or "a call", shown.text)
    return filled("{0}, and waits for {1}", blocked, awaited[1]) if awaited else blocked


def other_collectives(failure: Failure) -> dict[int, str]:
    """By rank, of those that are in the collective: the one of torch that it is in, where that is another.

    What a rank records is the call that it means to make; its stack has both, as they were at one moment. That a
    function of torch is the one that is meant shows where another rank is in it.
    """
    inside = {rank: called_collective(failure.stacks.get(rank, ""), failure.op) for rank in failure.culprit_ranks}
    if failure.op in PAIRED or failure.op not in inside.values():
        return {}
    return {rank: name for rank, name in inside.items() if name not in ("", failure.op)}


def called_collective(stack: str, op: str) -> str:
    r"""The collective of torch.distributed that the main thread is in, within our call of ``op``; else empty.

    >>> inner, outer = "/torch/distributed/distributed_c10d.py", "worker/comm.py"
    >>> called_collective(f'File "{inner}", line 9 in reduce_scatter_tensor\nFile "{outer}", line 8 in f', "f")
    'reduce_scatter'
    """
    frames = [frame for line in stack.partition("\n\n")[0].splitlines() if (frame := FRAME.match(line))]
    within = any(frame["file"].startswith(OURS) and frame["name"] == op for frame in frames)
    of_torch = itertools.takewhile(lambda frame: COLLECTIVES.search(frame["file"]), frames if within else ())
    called = [call["operation"] for frame in of_torch if (call := COLLECTIVE.match(frame["name"]))]
    return called[-1] if called else ""


def explain_foreign_call(
    failure: Failure,
    sleeping: Mapping[int, str] = MappingProxyType({}),
    absent: Mapping[int, str] = MappingProxyType({}),
) -> Failure:
    """A failure of kind ``network``, as that of ranks which are within a call that is not torch's, or is not that of
    the others; else unchanged.

    ``sleeping``: by rank, the function of the kernel in which its main thread sleeps; it counts where no stack tells.
    ``absent``: by rank, a call to whose result nothing was written: since then it is a call ahead of the others.
    """
    concerned = failure.concerned
    call = filled("inside the call of {0} ", failure.op) if failure.op else ""
    callers = {rank: frame for rank in concerned if (frame := second_caller(failure.stacks.get(rank, "")))}
    for foreign, template in (
        (absent, "took no part in {1}: nothing was written to the result"),
        (foreign_calls(failure), "{0}at {1}, which is not torch"),
        (callers, "{0}another thread calls a collective, too, in {1}, and takes what is sent to the first"),
        (other_collectives(failure), "{0}at {1} of torch: another call than the one that was meant"),
        ({rank: sleep_text(name) for rank, name in sleeping_apart(failure, sleeping).items()}, "{0}{1}"),
    ):
        if foreign and len(foreign) < len(concerned):
            kind: FailureKind = "left" if foreign is absent else "blocked"
            return blame(failure, kind, foreign, filled(template, call, next(iter(foreign.values()))))
    return failure


def explain_wrong_size(failure: Failure, finished: Iterable[int], error: str, members: Iterable[int] = ()) -> Failure:
    """A failure of kind ``dead``, where gloo aborted a rank as another one sent it data of another collective.

    ``finished``: ranks that are out of the collective in which it aborted; ``error``: its last error output;
    ``members``: the ranks that may have sent it data, where they are known.
    """
    early = tuple(sorted(finished))
    blocked = tuple(rank for rank in failure.concerned if rank not in early)
    if WRONG_SIZE not in error:
        return failure
    ranks = ", ".join(map(str, failure.culprit_ranks))
    if not early and (cause := _otherwise_than_recorded(failure, error, tuple(members))):
        return cause
    if not early or failure.op in PAIRED | ROOTED:
        why = filled(
            "Rank {0} aborted as gloo does when data of another size comes than it expects: it may be "
            "the victim of a rank that sent it data of another call, and which one did is not known.",
            ranks,
        )
        concerned = {*failure.concerned, *early, *members}
        text = filled("rank {0} was sent data of another call; which rank is at another call is not known", ranks)
        return blame(msgspec.structs.replace(failure, evidence=(*failure.evidence, why)), "left", concerned, text)
    why = filled(
        "Rank {0} aborted in it, as gloo does when data of another size comes than it expects: {1}", ranks, error
    )
    return _blame_fewest(msgspec.structs.replace(failure, evidence=(*failure.evidence, why)), early, blocked)


def _otherwise_than_recorded(failure: Failure, error: str, members: tuple[int, ...]) -> Failure | None:
    """Where all members are in one all_reduce, by their records: who does another one than it records; else None.

    gloo's ring (gloo/allreduce.cc) takes each message from the next rank, and what they record tells its length.
    """
    lengths, right = LENGTHS.search(error), message_bytes(failure, len(members))
    if len(failure.culprit_ranks) != 1 or failure.culprit_ranks[0] not in members or not (lengths and right):
        return None
    (aborted,) = failure.culprit_ranks
    received, expected = int(lengths["received"]), int(lengths["expected"])
    if (received in right) == (expected in right):
        return None
    sender = members[(members.index(aborted) + 1) % len(members)]
    ranks, partner = (aborted, sender) if received in right else (sender, aborted)
    why = filled(
        "By their records all ranks are in {0} #{1} ({2} x {3}), whose messages have {4} bytes: rank {5} was sent {6} "
        "bytes by rank {7} and expected {8}.",
        failure.op, failure.seq, failure.numel, failure.dtype, " or ".join(map(str, right)), aborted, received, sender,
        expected,
    )  # fmt: skip
    text = filled("made another call than recorded: the data does not fit that of rank {0}", partner)
    concerned = msgspec.structs.replace(failure, evidence=(*failure.evidence, why), waiting_ranks=members)
    return blame(concerned, "left", (ranks,), text)


def message_bytes(failure: Failure, size: int) -> tuple[int, ...]:
    """Lengths of the messages of this all_reduce in gloo's ring of ``size`` ranks; the last one may be shorter.

    >>> message_bytes(Failure("dead", op="all_reduce", numel=1021, dtype="bfloat16"), 5)
    (206, 188)
    """
    element = ELEMENT_BYTES.get(failure.dtype, 0)
    if failure.op != "all_reduce" or size < 2 or not element * failure.numel:
        return ()
    total = element * failure.numel
    piece = min(-(-total // (2 * size)), MAX_PIECE // element * element)
    piece = -(-piece // element) * element
    return tuple(dict.fromkeys((piece, total % piece or piece)))


def _blame_fewest(failure: Failure, early: tuple[int, ...], blocked: tuple[int, ...]) -> Failure:
    """Some ranks finished what others cannot: the smaller side did something else than the rest."""
    call = filled("{0} #{1}", failure.op, failure.seq)
    if failure.op in ONE_WAY:
        return blame(failure, "left", early, filled("finished {0}, and the others have received nothing", call))
    if len(early) < len(blocked):
        return blame(
            failure, "left", early, filled("finished {0}, which the others cannot, without a full part in it", call)
        )
    if len(blocked) < len(early):
        text = filled("still in {0}, which all others have finished: the call was perhaps made twice", call)
        return blame(failure, "blocked", blocked, text)
    text = filled("some ranks finished {0} and the others cannot; which of them are wrong is not known", call)
    return blame(failure, "left", tuple(sorted({*early, *blocked})), text)


def blame(failure: Failure, kind: FailureKind, ranks: Iterable[int], text: str) -> Failure:
    """The failure of this kind, with these ranks as its culprits and all others that it knows as waiting."""
    return failure.blaming(ranks, kind=kind, certainty="evidence", text=text)


def foreign_frame(stack: str) -> str:
    r"""The innermost call of a rank in a collective, if it is not in torch; the empty string if it is, or is not known.

    >>> foreign_frame('Current thread 0x1:\n  File "/usr/lib/sitecustomize.py", line 7 in all_reduce')
    '/usr/lib/sitecustomize.py:7 all_reduce'
    """
    if IMPORT in stack:
        return ""
    for line in stack.splitlines():
        if (frame := FRAME.match(line)) and not ANYBODYS.search(frame["file"]):
            library = NOT_THE_PROGRAM.search(frame["file"])
            return "" if library else f"{frame['file']}:{frame['line']} {frame['name']}"
    return ""


def callers_stack(text: str) -> str:
    """The stack of the main thread, and of one that calls collectives beside it."""
    others = [main_thread_stack(part) for part in collective_threads(text.partition("\nloader worker ")[0])[:1]]
    return "\n\n".join([main_thread_stack(text), *others])


def collective_threads(stacks: str) -> list[str]:
    """The parts of what faulthandler wrote that are of threads which call collectives, and are not the main one's.

    Hooks of the backward pass run on a thread of their own and call ours.
    """
    callers: list[str] = []
    for part in stacks.split("\n\n"):
        files = [frame["file"] for line in part.splitlines() if (frame := FRAME.match(line))]
        if THREAD.match(part.strip()) and files and COLLECTIVES.search(files[0]):
            callers += [] if any(file.startswith(OURS) for file in files) else [part.strip()]
    return callers


def second_caller(stack: str) -> str:
    """Where a thread beside the main one calls a collective: outside of torch, where that is known."""
    for part in collective_threads(stack):
        frames = [frame for line in part.splitlines() if (frame := FRAME.match(line))]
        outer = [frame for frame in frames if not NOT_THE_PROGRAM.search(frame["file"])]
        return "{file}:{line} {name}".format_map((outer or frames)[0].groupdict())
    return ""


def main_thread_stack(text: str) -> str:
    r"""The main thread's part of what faulthandler wrote, and of its loader workers' too.

    >>> main_thread_stack(
    ...     "Thread 0x1 (most recent call first):\n  A\n\nCurrent thread 0x2 (most recent call first):\n  B\n"
    ... )
    'Current thread 0x2 (most recent call first):\n  B'
    """
    process_text, *workers = without_own_frames(text).split("\nloader worker ")
    parts = [_current_thread(process_text)]
    for worker in workers:
        head, _, body = worker.partition("\n")
        parts.append(f"loader worker {head}\n{_current_thread(body)}")
    lines = [
        line[: len(line) - len(line.lstrip(" "))][:8] + strip_control_chars(line)
        for line in "\n".join(parts).splitlines()
    ]
    return "\n".join(lines)[:LONGEST_STACK]


def _current_thread(text: str) -> str:
    parts = [part.strip() for part in text.split("\n\n")]
    return next((part for part in parts if part.startswith("Current thread")), parts[-1])
