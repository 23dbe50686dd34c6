"""A job that was ended from outside: where it had stood still before, the action asks for what tells why."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

from doctor.diagnose.render.action import ActionDocument, action_of
from tests.diagnose.test_rules import SIGNATURES, logs

STEPS = "".join(f"2026-11-20 10:0{n}:01 INFO step {n} loss 2.{n}\n" for n in range(6))
SLURM = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-20T{time} ***\n"
LIMIT = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-20T{time} DUE TO TIME LIMIT ***\n"
TORCHRUN = (
    "W1120 {time}.221000 900 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal, shutting down workers\n"
    "W1120 {time}.222000 900 torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 911 closing signal SIGTERM\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 900 got signal: 15\n"
)


def action(**files: str) -> ActionDocument:
    return action_of(logs(**files), SIGNATURES)


@pytest.mark.parametrize("end", [SLURM, LIMIT, TORCHRUN], ids=["scancel", "time limit", "torchrun"])
def test_after_a_long_silence_the_action_asks_why(end: str) -> None:
    found = action(run=STEPS + end.format(time="12:13:05"))
    assert found.kind == "ask" and "for 2 h" in found.text and "doctor watch" in found.text
    assert "scontrol requeue" not in found.text


@pytest.mark.parametrize("end", [SLURM, TORCHRUN], ids=["scancel", "torchrun"])
def test_a_job_that_was_at_work_starts_again(end: str) -> None:
    assert action(run=STEPS + end.format(time="10:06:10")).kind == "retry"


def test_a_job_that_prints_seldom_did_not_stand_still() -> None:
    epochs = "".join(f"2026-11-20 0{n}:00:01 INFO epoch {n} loss 2.{n}\n" for n in range(6))
    assert action(run=epochs + SLURM.format(time="06:40:00")).kind == "retry"


def test_where_no_line_shows_a_time_the_action_says_what_to_do_if_it_stood_still() -> None:
    found = action(run="step 1 loss 2\nstep 2 loss 2\n" + SLURM.format(time="12:13:05"))
    assert found.kind == "retry" and "If it had stood still" in found.text


def test_the_logs_of_ranks_show_the_silence_of_a_job_whose_launcher_prints_its_end() -> None:
    end = SLURM.format(time="12:13:05")
    assert action(rank_0=STEPS, rank_1=STEPS, slurm=end).kind == "ask"
    at_work = STEPS.replace("10:0", "12:0") + "2026-11-20 12:12:31 INFO step 6 loss 2.6\n"
    assert action(rank_0=STEPS, rank_1=at_work, slurm=end).kind == "retry"


def test_a_silence_of_which_something_else_is_the_cause_is_no_reason_to_ask() -> None:
    fault = "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    assert action(run=STEPS + fault + TORCHRUN.format(time="12:13:05")).kind == "give-memory"
