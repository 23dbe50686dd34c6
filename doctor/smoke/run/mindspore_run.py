"""A run whose hosts have MindSpore and no torch: it is made again with MindSpore, as far as that goes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run.result import SmokeResult

MINDSPORE_ONLY = "MindSporeOnly: "
"""What an interpreter's error begins with that has MindSpore and no torch."""
MINDSPORE_STAGES = ("start", "rendezvous", "collectives", "learning", "teardown")
NOTE = "The ranks ran MindSpore on CPUs: its collectives and a data-parallel training. Other stages need torch."


def repeat_with_mindspore(
    result: SmokeResult, options: SmokeOptions, repeat: Callable[[SmokeOptions], SmokeResult]
) -> tuple[SmokeResult, SmokeOptions]:
    """The result, or that of a run with MindSpore where all hosts lack torch; with the options that it was made by."""
    if result.stopped or not reason_not_run(result) or result.run.plan.backend != "gloo":
        return result, options
    options = msgspec.structs.replace(options, library="mindspore", stages=MINDSPORE_STAGES, soak=0.0)
    result = repeat(options)
    run = msgspec.structs.replace(result.run, notes=(NOTE, *result.run.notes))
    return msgspec.structs.replace(result, run=run), options


def reason_not_run(result: SmokeResult) -> str:
    """Why a run whose ranks could not start proves nothing about the job; empty where it does.

    A job of MindSpore needs no torch, which the smoke run trains with: that is no fault of any host.
    """
    failure = result.run.failures[0] if result.run.failures else None
    if failure is None or failure.kind != "not-started" or failure.waiting_ranks:
        return ""
    texts = failure.text.split("; ")
    if not all(text.startswith(MINDSPORE_ONLY) for text in texts):
        return ""
    return (
        f"{texts[0][len(MINDSPORE_ONLY) :]}; with MindSpore it runs on CPUs alone: use --backend gloo, or name an "
        "interpreter that has torch with --python"
    )
