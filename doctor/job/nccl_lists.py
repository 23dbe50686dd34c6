"""The values of NCCL_ALGO and NCCL_PROTO, as each release of NCCL reads them. Pure.

Source: NCCL, ``parseList`` and ``ncclTopoTuneModel`` in src/graph/tuning.cc and "no algorithm/protocol available" in
src/enqueue.cc, of the releases 2.12 to 2.30. From 2.24.3 on a word that it does not have ends the communicator with
ncclInvalidUsage, and a list holds for all functions, although Broadcast and Reduce have the ring alone: with NVLS, PAT
and ^Ring, DDP ended at its first broadcast (2.28, on an H200); few programs reduce to one rank. Before, unknown
words are passed over; a list of algorithms without any other word leaves the ring, one of protocols leaves nothing, and
a part such as ``allreduce:tree`` is one unknown word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined

STRICT = (2, 24)
"""The first release that ends at a word that it does not know."""
FIRST_TORCH = (2, 7)
"""The first PyTorch with such a release."""
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_OLD = {"collnet"}
"""Of releases before 2.14."""
MOST_CHARS = 4096


class ListFault(msgspec.Struct, frozen=True):
    """A value that NCCL refuses, or that it does not follow."""

    variable: str
    value: str
    expected: str
    ends: bool
    """It ends the job; otherwise NCCL goes on without the wish."""


def list_faults(environ: Mapping[str, str], nccl: tuple[int, ...], *, alone: bool = False) -> Iterator[ListFault]:
    """What is wrong with the two variables. ``nccl``: the release; empty where it is not known.

    ``alone``: in a job of one rank, which reads neither.

    >>> [(one.ends, one.expected) for one in list_faults({"NCCL_PROTO": "LL256"}, (2, 27, 3))]
    [(True, 'LL, LL128 or Simple instead of LL256')]
    >>> [one.ends for one in list_faults({"NCCL_ALGO": "Rign,Tree"}, (2, 21, 5))]
    [False]
    """
    for variable, accepted in (("NCCL_ALGO", ALGORITHMS), ("NCCL_PROTO", PROTOCOLS)):
        value = environ.get(variable, "")
        if not value:
            continue
        expected = _fault(value, accepted) if len(value) < MOST_CHARS else "a shorter list"
        if expected:
            ends = nccl >= STRICT or (variable == "NCCL_PROTO" and not _has_accepted(value, accepted))
            yield ListFault(variable, printable(value, 80), expected, ends and not alone)
        elif nccl >= STRICT and variable == "NCCL_ALGO" and (without := _without_algorithm(value)):
            expected = filled("Ring for {0}, too: allreduce:tree leaves them as they are", joined(" and ", without))
            yield ListFault(variable, printable(value, 80), expected, "broadcast" in without and not alone)


def _parts(value: str) -> list[tuple[str, str]]:
    """Function, empty for all, and list; strtok passes over empty parts."""
    parts = []
    for part in value.split(";"):
        if part:
            function, colon, names = part.partition(":")
            parts.append((function, names) if colon else ("", function))
    return parts


def _members(names: str) -> list[str]:
    return [word for word in names.removeprefix("^").split(",") if word]


def _fault(value: str, accepted: tuple[str, ...]) -> str:
    """What is expected instead, or the empty string."""
    folded = {word.lower() for word in accepted} | (_OLD if accepted is ALGORITHMS else set())
    for number, (function, names) in enumerate(_parts(value)):
        if function and function.lower() not in {name.lower() for name in FUNCTIONS}:
            return filled(
                "{0} or {1} before the colon instead of {2}",
                ", ".join(FUNCTIONS[:-1]),
                FUNCTIONS[-1],
                printable(function, 40),
            )
        if number and not function:
            return filled("a function before {0}, such as allreduce:{1}", printable(names, 40), printable(names, 40))
        for word in _members(names):
            if word.lower() not in folded:
                return filled("{0} or {1} instead of {2}", ", ".join(accepted[:-1]), accepted[-1], printable(word, 40))
    return ""


def _has_accepted(value: str, accepted: tuple[str, ...]) -> bool:
    """Whether a release before `STRICT` finds a word that it knows, or excludes only some."""
    folded = {word.lower() for word in accepted}
    return value.startswith("^") or any(word.lower() in folded for word in re.split(r"[,;:]", value))


def _without_algorithm(value: str) -> list[str]:
    """Of Broadcast and Reduce, which have the ring alone, those that the list leaves without it."""
    enabled = dict.fromkeys(("broadcast", "reduce"), True)
    for function, names in _parts(value):
        excludes = names.startswith("^")
        has_ring = ("ring" in map(str.lower, _members(names))) != excludes
        for name in enabled:
            if not function or function.lower() == name:
                enabled[name] = has_ring
    return [name for name, has_ring in enabled.items() if not has_ring]
