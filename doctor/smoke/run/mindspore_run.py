"""A run whose hosts have MindSpore and no torch: it is made again with MindSpore, as far as that goes."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from doctor.engine.texts import filled
from doctor.smoke.model import SmokeResult
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.run.environment_trial import CannotRepeat

MINDSPORE_ONLY = re.compile(r"(?:\w[\w ]{0,40}: )?(\S.{0,400} has MindSpore ?\S{0,40} and no torch)$")
"""The error of an interpreter that has MindSpore and no torch, behind its class or the exit status of a rank."""
MINDSPORE_STAGES = ("start", "rendezvous", "collectives", "learning", "teardown")
NOTE = "The ranks ran MindSpore on CPUs: its collectives and a data-parallel training. Other stages need torch."


def repeat_with_mindspore(
    result: SmokeResult, options: SmokeOptions, repeat: Callable[[SmokeOptions], SmokeResult]
) -> tuple[SmokeResult, SmokeOptions]:
    """The result, or that of a run with MindSpore where all hosts lack torch; with the options that it was made by."""
    if result.stopped or not reason_not_run(result) or result.run.plan.backend != "gloo":
        return result, options
    other = msgspec.structs.replace(options, library="mindspore", stages=MINDSPORE_STAGES, soak=0.0)
    try:
        again = repeat(other)
    except (CannotRepeat, ValueError):
        return result, options
    if any("No module named 'mindspore'" in failure.text for failure in again.run.failures):
        return result, options  # some hosts have torch, and had not imported it yet
    if any(failure.kind == "not-started" and not failure.waiting_ranks for failure in again.run.failures):
        return result, options  # this MindSpore does not run anywhere, or lacks what the run needs
    run = msgspec.structs.replace(again.run, notes=(NOTE, *again.run.notes))
    return msgspec.structs.replace(again, run=run), other


def reason_not_run(result: SmokeResult) -> str:
    """Why a run whose ranks could not start proves nothing about the job; empty where it does.

    A job of MindSpore needs no torch, which the smoke run trains with: that is no fault of any host.
    """
    failure = result.run.failures[0] if result.run.failures else None
    if failure is None or failure.kind != "not-started" or result.run.import_seconds:
        return ""
    matches = [MINDSPORE_ONLY.search(text) for text in failure.text.split("; ")]
    if not matches or not matches[0] or not all(matches):
        return ""
    return filled(
        "{0}; a run with MindSpore works on CPUs (--backend gloo) and needs version 2.7 or later: "
        "otherwise name an interpreter that has torch with --python",
        matches[0][1],
    )
