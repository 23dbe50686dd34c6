"""Ranks that others have been waiting for and that still work: one sentence, which is no verdict. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled, joined
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.smoke.hang.standstill import main_thread_stack
from doctor.smoke.model import Failure

_FRAME = re.compile(r'File "([^"]{1,300})", line (\d{1,7}) in ([^\n]{1,100})')


def program_line(stack: str) -> str:
    r"""The innermost line of the program itself in what faulthandler wrote; empty without one.

    >>> program_line('File "/x/site-packages/a.py", line 1 in b\nFile "/x/t.py", line 7 in f')
    'f at t.py:7'
    """
    for path, line, name in _FRAME.findall(main_thread_stack(stack)):
        if is_of_program(path):
            return f"{name.strip()} at {path.rpartition('/')[2]}:{line}"
    return ""


def wait_sentence(failure: Failure, hosts: str, effort: str, line: str, limit: float) -> str:
    """Who waits for whom, what that one does, and until when that is no fault."""
    who, waiting = rank_names(failure.culprit_ranks), rank_names(failure.waiting_ranks)
    does = {
        "works": "has used a CPU all the time",
        "moves data": "reads or writes",
        "asks again and again": "asks for something again and again",
        "sleeps": "sleeps, or waits with a limit of its own",
    }.get(effort, effort)
    place = filled(", in {0}", line) if line else ""
    if not failure.waiting_ranks:
        text = "long wait of {0} on {1}, all outside of collectives; it {2}{3}: no sign of any for {4} s"
        return filled(text, who, hosts, does, place, f"{failure.seconds:.0f}")
    text = (
        "long wait for {0} on {1}, which {2}{3}: no sign of it for {4} s; waiting in {5}, or for one that waits there: "
        "{6}; no fault before the group's own limit of {7} s"
    )
    return filled(text, who, hosts, does, place, f"{failure.seconds:.0f}", failure.op, waiting, f"{limit:.0f}")


def unseen_sentence(absent_ranks: Sequence[int]) -> str:
    """Which ranks were not seen; empty where all were."""
    text = "Nothing is known of {0}, which no watch has seen."
    return filled(text, rank_names(absent_ranks)) if absent_ranks else ""


def quiet_sentence(without_sign: Mapping[int, tuple[float, str]], store_port: str) -> str:
    """For whom ranks waited outside of all collectives when the job was ended; empty where none did."""
    ranks_by_peer = lists_by_key((peer, rank) for rank, (_, peer) in sorted(without_sign.items()))
    texts = []
    for peer, ranks in ranks_by_peer.items():
        purpose = filled("for {0}", peer) if peer else "in no collective, and at rest"
        if store_port and peer.endswith(f":{store_port}"):
            purpose = filled("for the job's store at {0}, as for a key that no rank has set", peer)
        seconds = min(without_sign[rank][0] for rank in ranks)
        texts.append(filled("{0} waited {1}, without a sign for {2} s", rank_names(ranks), purpose, f"{seconds:.0f}"))
    return filled("When the job was ended, {0}.", joined("; ", texts)) if texts else ""


def no_fault(host: str, unjudged: Sequence[int], unseen: str, quiet: str, cut: str) -> str:
    """What is said where nothing was found. ``unjudged``: ranks without a step; the others: sentences, or empty."""
    text = filled("no fault was found in the ranks of {0}", host) if unseen else "no fault was found"
    if quiet:
        text = filled("whether something stopped the training is not known. {0}", quiet.removesuffix("."))
    if cut:
        text = filled("{0}. {1}", text, cut.removesuffix("."))
    if unjudged:
        text = filled("nothing was judged: when the job was ended, {0} had made no step", rank_names(unjudged))
    return filled("{0}. {1}", text, unseen) if unseen else text
