"""A failure as the values of a finding: who, where, what it was doing, who waited. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from doctor.analysis.refused_routes import REFUSED_BY_ROUTE
from doctor.engine.fact import Unreadable
from doctor.engine.pairwise_blame import part_values
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.facts.interfaces import DELETE_DELAY
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.smoke.hang.describe import format_group
from doctor.smoke.model import UNKNOWN_HOST, Failure, FailureKind, SmokeRun
from doctor.smoke.results.to_facts import unreached_reason

FRAMES = 4
"""Of a stack, innermost first."""
MAX_LISTED = 8
OWN_PROGRAM = (
    "This run executes doctor's own program, the same on all ranks, and none of yours: what holds that rank up is on "
    "its host. {0} There: `top -b -n 1 | head -20` (what else takes its CPUs), `timeout 10 df` (a file system that "
    "does not answer), `echo $LD_PRELOAD; python3 -c 'import sitecustomize as s; print(s.__file__)'` (what changes "
    "Python programs), `dmesg -T | tail`."
)
OTHER_HOSTS = (
    "Leave it out of the job until this test passes with it. `doctor check` compares the software of all hosts."
)
ONLY_HOST = "Start no job on it until this test passes."
CUT = "no data passes between {between}; none of them holds more than half of {count} hosts"
"""The message for a fleet that is cut, with any kind of failure."""
Remedies = Sequence[tuple[str, str]]
DEVICE_MEMORY = (
    (
        r"\b(?:CUDA|HIP|NPU)\w*\b.{0,60}\bout of memory\b|\b(?:CUBLAS|HIPBLAS)_STATUS_ALLOC_FAILED"
        r"|\bcudaErrorMemoryAllocation\b|\bhipErrorOutOfMemory\b|\berror code is 207001\b|\baclrtMalloc\w* failed"
    ),
    (
        "The device's memory is used up. Find who holds it: `nvidia-smi "
        "--query-compute-apps=pid,process_name,used_memory --format=csv`, for an NPU `npu-smi info`, for an AMD GPU "
        "`rocm-smi --showpids`. If it is another program, and not needed: `kill <pid>`. If the job alone fills it: a "
        "smaller batch, or recompute activations."
    ),
)
"""What failed, and what to do about it: before the rank joins, and later.

Sources: torch, c10/cuda/CUDACachingAllocator.cpp and cublas's status; CANN, ACL_ERROR_RT_MEMORY_ALLOCATION; "CUDA
error: out of memory" at torch.cuda.set_device, beside a process that held all but 0.2 of the 140 GiB of an H200.
"""
TAKEN = (
    r"([\w.-]{1,200}) has ([\da-fA-F.:]{3,45}) as well, the address of",
    (
        "On {0}, `ip -o address show to {1}` prints the interface and prefix of the address, and `ip address del "
        "{1}/<prefix> dev <interface>` as root takes it from this host. `grep -rsF {1} /etc` prints the files that may "
        "set it again at boot."
    ),
)
"""Of two hosts with one address."""
HELD_BACK = (r"\b(?:netem|tbf) on (?=\S{1,64} of ([\w.-]{1,200}) )(\S{1,64}) of ", DELETE_DELAY)
"""Of a queueing discipline."""
NO_ROOM = (
    r"\bgc_thresh3 is too small",
    (
        "On the machine of these hosts, as root: `sysctl -w net.ipv4.neigh.default.gc_thresh3=4096 "
        "net.ipv4.neigh.default.gc_thresh2=2048`; `doctor explain neighbour-table-small` says how to keep it."
    ),
)
"""Of a table of neighbours."""
HALTED = (
    r"rule for outgoing packets on ([\w.-]{1,200}) refuses",
    (
        "On {0}, as root: `nft -a list ruleset` and `iptables-save` print its rules. Of those for outgoing packets "
        "(hook output, chain OUTPUT), `nft delete rule <family> <table> <chain> handle <number>` or `iptables -D "
        "OUTPUT <number>` deletes the one that refuses them."
    ),
)
"""Of a firewall of the sender itself."""
REFUSING = (r"([\w.-]{1,200}) itself refuses to send to ([\da-fA-F.:]{3,45}): ", REFUSED_BY_ROUTE)
"""Of a host whose kernel has no way to another one."""
PROGRAM_LINE = re.compile(
    r'File "((?!\S*/(?:site|dist)-packages/|\S*/lib/python3)/[A-Za-z0-9_./+-]{1,300})", line ([1-9]\d{0,6})\b'
)
"""The innermost line of a stack that lies in no library, by a path that no shell reads otherwise."""
DEVICES = {"gloo": "", "nccl": "GPU", "hccl": "NPU"}
ACCELERATORS = {**DEVICES, "gloo": "CPU"}
"""What a run trains on: a remedy for another kind of device is left out of the report."""


OTHER_CALL = (
    "This run executes doctor's own program, the same on all ranks, and none of yours: another call of one rank comes "
    "of other software or wrong results on its host. {0} `doctor smoke --device-test` shows whether that host computes "
    "wrong values. On that host and on another one: `python3 -m pip list | grep -iE 'torch|nccl|gloo'` shows other "
    "versions; `env | grep -E '^(LD_PRELOAD|PYTHON|TORCH)'` shows what changes Python programs."
)


OWN_ERROR = (
    "This run executes doctor's own program, the same on all ranks, and none of yours: an error of one rank alone "
    "comes from the software or the hardware of its host. {0} On that host and on another one: `python3 -m pip list | "
    "grep -iE 'torch|nccl|gloo'` shows other versions; `dmesg -T | tail` shows errors of the hardware."
)


def own_program(run: SmokeRun, look: str = OWN_PROGRAM) -> str:
    """What to look at behind what only one rank does, in a run that executes no program of the user's."""
    return filled(look, OTHER_HOSTS if len(run.plan.ranks_by_host) > 1 else ONLY_HOST)


def failure_findings(
    run: SmokeRun,
    template: str | Callable[[Failure], str],
    *kinds: FailureKind,
    remedies: Remedies | Callable[[Failure], str] = (),
    fix_of: Callable[[str], str] = lambda _: "",
    **more: Any,
) -> Iterator[Finding]:
    """One finding for each failure of these kinds, at the hosts that cause it; ``template`` may depend on the failure.

    ``remedies``: patterns of what failed, each with what to do about it; or what finds that for a failure.
    ``fix_of``: what to do about an error that none of the patterns is in; `doctor.diagnose.lookup.fix_of`.

    Raises: Unreadable, for a run without such a failure that did not complete either.
    """
    failures = [failure for failure in run.failures if failure.kind in kinds]
    passes_without = run.environment_trial is not None and run.environment_trial.passes
    for failure in failures:
        message_template = template if isinstance(template, str) else template(failure)
        values = finding_values(run, failure) | more
        hosts = tuple(host for host in blamed_hosts(run, failure) if host != UNKNOWN_HOST)
        text = "; ".join((values["text"], *failure.evidence))
        finding = Finding(
            CUT if failure.parts else message_template,
            hosts=hosts,
            remedy=remedies(failure) if callable(remedies) else remedy_for(text, remedies, **more) or fix_of(text),
            **values,
        )
        finding = finding.as_warning(failure.certainty == "likely")
        yield finding.because_of("smoke-environment-fails") if passes_without else finding
    if not failures and (run.ended != "complete" or run.undecided):
        raise Unreadable(*unreached_reason(run, "teardown"))


def remedy_for(text: str, remedies: Remedies, **values: Any) -> str:
    """What to do about ``text``: that of the first pattern in it with its groups and ``values``, else nothing."""
    matches = ((re.search(pattern, text[:2000], re.IGNORECASE), remedy) for pattern, remedy in remedies)
    return next(
        (filled(remedy, *match.groups(), **values) if "{" in remedy else remedy for match, remedy in matches if match),
        "",
    )


def blamed_hosts(run: SmokeRun, failure: Failure) -> tuple[str, ...]:
    """Those of the culprit ranks; of a broken link both ends, unless one host explains several; else all.

    None where a network failure, a rendezvous or a doctor that stood still has no culprit ranks: that all wait is no
    reason to name one of them.
    """
    if ways := failure.parts or failure.links:
        ends = tuple(sorted({host for way in ways for host in way}))
        common = set[str]().union(*ways).intersection(*ways)
        return tuple(common) if len(ends) > 2 and len(common) == 1 else ends  # one: several links of one host
    names_nobody = failure.kind in ("network", "never-joined", "budget", "unobserved")
    return run.hosts(failure.culprit_ranks) or (() if names_nobody else run.hosts(tuple(range(run.plan.world))))


def finding_values(run: SmokeRun, failure: Failure) -> dict[str, Any]:
    """What templates and pages may name. ``doing``: the culprit rank's last call."""
    first = failure.culprit_ranks[0] if failure.culprit_ranks else -1
    return {
        **(part_values(failure.parts) if failure.parts else {}),
        "accelerator": ACCELERATORS[run.plan.backend],
        "who": describe_ranks(run, failure.culprit_ranks) or "not known which rank",
        "ranks": list(failure.culprit_ranks),
        # It is one of two ends, of two sides, or of a cycle, and nothing tells which.
        "tie": bool(failure.links)
        or (failure.kind in ("mismatch", "order") and failure.culprits_differ)
        or (failure.kind == "left" and not failure.waiting_ranks)
        or (
            failure.kind == "never-joined" and 1 < len(run.plan.ranks_by_host) == len(run.hosts(failure.culprit_ranks))
        ),
        "where": describe_position(failure),
        "stage": failure.stage,
        "step": failure.step,
        "layout": failure.layout,
        "op": failure.op,
        "group": failure.group,
        "call": describe_call(failure),
        "doing": failure.calls.get(first, "") or "no recorded collective",
        "state": failure.states.get(first, ""),
        "sides": describe_sides(failure),
        "others": _others(failure),
        "pings": _pings(failure),
        "waiting": describe_ranks(run, failure.waiting_ranks) or "no rank",
        "text": failure.text or failure.states.get(first, ""),
        "frame": innermost_frames(failure.stacks.get(first, "")),
        "seconds": round(failure.seconds, 2),
        "limit": round(failure.limit, 2),
        "certainty": failure.certainty,
        "links": [filled("{0} to {1}", source, target) for source, target in failure.links] or [failure.text or "none"],
        "evidence": list(failure.evidence),
    }


def pressure_note(run: SmokeRun, hosts: Sequence[str]) -> str:
    """What kept the ranks of these hosts from running, to stand behind a verdict; the empty string for nothing."""
    texts = [text for host in hosts for text in run.pressure.get(host, ())][:FRAMES]
    return filled(". {0}", " ".join(texts)) if texts else ""


def describe_ranks(run: SmokeRun, numbers: Sequence[int]) -> str:
    """Such as ``rank 2 (NPU 2)``, ``ranks 0, 1 and 3``; the empty string for none."""
    device = DEVICES[run.plan.backend]
    if len(numbers) == 1:
        number = run.plan.places[numbers[0]].device
        return (
            filled("rank {0} ({1} {2})", numbers[0], device, number) if device and number >= 0 else f"rank {numbers[0]}"
        )
    parts = [str(rank) for rank in numbers[:MAX_LISTED]]
    parts += [filled("{0} more", len(numbers) - MAX_LISTED)] if len(numbers) > MAX_LISTED else []
    return filled("ranks {0} and {1}", ", ".join(parts[:-1]), parts[-1]) if parts else ""


def describe_position(failure: Failure) -> str:
    """Such as ``in step 3 of dp2 tp2``, ``in the collectives stage``."""
    if failure.layout:
        return filled("in step {0} of {1}", failure.step, failure.layout)
    return filled("in the {0} stage", failure.stage) if failure.stage else "in the run"


_COLLECTIVE = re.compile(r"(?:monitored_)?(?:all_|i?reduce|i?broadcast|barrier|i?gather|i?scatter|i?send|i?recv)")


def awaited_call(failure: Failure) -> str:
    """The collective in which all that wait are, as they show it; empty where they differ, or it is another wait."""
    text, *others = {failure.calls.get(rank, "") for rank in failure.waiting_ranks} or ("",)
    return text if not others and _COLLECTIVE.match(text) else ""


def describe_call(failure: Failure) -> str:
    """Such as ``all_reduce #25 (4096 x float32, group tp2 [2,3]; layout dp2 tp2, step 2)``."""
    if not failure.op:
        return awaited_call(failure) or "no collective"
    size = filled("{0} x {1}, ", failure.numel, failure.dtype) if failure.dtype else ""
    position = filled("stage {0}", failure.stage)
    if failure.layout:
        position = filled("layout {0}, step {1}", failure.layout, failure.step)
    return filled("{0} #{1} ({2}group {3}; {4})", failure.op, failure.seq, size, format_group(failure.group), position)


def describe_sides(failure: Failure) -> list[str]:
    """What each rank concerned was doing, ranks that did the same together, culprits first."""
    same: dict[str, list[int]] = {}
    for rank in sorted(failure.calls, key=lambda rank: (rank not in failure.culprit_ranks, rank)):
        same.setdefault(failure.calls[rank], []).append(rank)
    return [_side(some, doing) for doing, some in list(same.items())[:MAX_LISTED]]


def _others(failure: Failure) -> str:
    """What a rank of the culprit's group did instead, of the same number where there is one."""
    others = {rank: call for rank, call in failure.calls.items() if rank not in failure.culprit_ranks and call}
    if not others:
        return "the others did not"
    doing = others[min(others, key=lambda rank: (format_group(failure.group) not in others[rank], rank))]
    return _side([rank for rank in sorted(others) if others[rank] == doing], doing)


def _pings(failure: Failure) -> str:
    """The commands that try the broken links, each on its own end."""
    ways = dict.fromkeys(way for source, target in failure.links for way in ((source, target), (target, source)))
    commands = [filled("on {0}: `ping -c 3 {1}`", source, target) for source, target in list(ways)[:4]]
    return filled("Try each end: {0}.", joined("; ", commands)) if commands else "Let the hosts ping each other."


def _side(ranks: Sequence[int], doing: str) -> str:
    numbers = ", ".join(map(str, ranks[:MAX_LISTED])) + " ..." * (len(ranks) > MAX_LISTED)
    return filled("ranks {0}: {1}" if len(ranks) > 1 else "rank {0}: {1}", numbers, doing)


def innermost_frames(stack: str) -> str:
    r"""The innermost calls of a stack, in one line, from the first that is the program's own on.

    >>> innermost_frames('File "/x/site-packages/torch/a.py", line 1 in wait\nFile "train.py", line 7 in <module>')
    'File "train.py", line 7 in <module>'
    """
    lines = [line.strip() for line in stack.splitlines() if line.strip().startswith('File "')]
    of_program = next((place for place, line in enumerate(lines) if is_of_program(line.split('"')[1])), 0)
    return " <- ".join(lines[of_program:][:FRAMES]) or "a place that is not known (no stack)"
