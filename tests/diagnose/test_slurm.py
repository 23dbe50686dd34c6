"""Outputs of a real Slurm 22.05 (`srun --label`, three tasks of the gloo program on two nodes), and what they mean."""

from __future__ import annotations

import pytest

from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import CLOSED, TIMED_OUT, logs, named

TERMINATED = """\
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
srun: error: n0: task 1: Terminated
srun: error: n1: task 2: Terminated
srun: error: n0: task 0: Terminated
"""
PROGRESS = "".join(f"{rank}: step 2 rank {rank} loss 0.3333\n" for rank in range(3))
CANCELLED = "0: slurmstepd-n0: error: *** STEP 1.0 ON n0 CANCELLED AT 2026-11-21T15:20:02{0} ***\n"


def test_a_step_that_a_person_cancelled_accuses_no_rank_although_the_line_has_the_label_of_one() -> None:
    (cause,) = logs(slurm=PROGRESS + CANCELLED.format("") + TERMINATED).causes
    assert (cause.signature, cause.culprits) == ("slurm-cancelled", ())


def test_a_step_that_reached_its_time_limit_accuses_no_rank() -> None:
    (cause,) = logs(slurm=PROGRESS + CANCELLED.format(" DUE TO TIME LIMIT") + TERMINATED).causes
    assert (cause.signature, cause.culprits) == ("slurm-time-limit", ())


def test_the_host_that_failed_is_named_and_not_the_one_that_prints_it() -> None:
    line = CANCELLED.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    (cause,) = logs(slurm=PROGRESS + line + "srun: error: Node failure on n1\n" + TERMINATED).causes
    assert [culprit.host for culprit in cause.culprits] == ["n1"]
    (alone,) = logs(slurm=PROGRESS + line).causes
    assert alone.culprits == ()


def test_the_host_that_the_scheduler_calls_down_is_named_where_the_output_names_none() -> None:
    line = CANCELLED.format(" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    state = "JobId=1 JobName=train\n   JobState=NODE_FAIL Reason=NodeDown\nNodeName=n1 Arch=x86_64 State=DOWN* X=1\n"
    (cause,) = logs(slurm=PROGRESS + line, state=state).causes
    assert (cause.signature, [culprit.host for culprit in cause.culprits]) == ("slurm-job-node-failed", ["n1"])
    (unnamed,) = logs(slurm=PROGRESS + line, state=state.replace("NODE_FAIL", "REQUEUED")).causes
    assert (unnamed.signature, unnamed.culprits) == ("slurm-node-failure", ())


def test_a_step_that_srun_cancels_after_a_task_was_killed_is_that_task() -> None:
    text = f"2: [rank2]: {CLOSED}\nsrun: error: n0: task 1: Killed\n" + CANCELLED.format("") + TERMINATED
    assert named(logs(slurm=PROGRESS + text)) == [("slurm-task-ended", "named by the launcher", [1])]


def test_a_step_that_srun_cancels_after_a_task_failed_is_that_task() -> None:
    text = (
        "1: [rank1]: ValueError: cannot reshape the batch of size 7\nsrun: error: n0: task 1: Exited with exit code 1\n"
    )
    diagnosis = logs(slurm=PROGRESS + text + CANCELLED.format("") + TERMINATED)
    assert named(diagnosis) == [("python-exception", "local fault", [1])]


def test_tasks_that_end_with_an_srun_that_was_ended_are_innocent() -> None:
    text = "srun: forcing job termination\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    diagnosis = logs(slurm=text + "srun: error: n1: tasks 2-3: Killed\nsrun: error: n0: tasks 0-1: Killed\n")
    assert not diagnosis.causes and diagnosis.failed and exit_code(diagnosis) == 12


def test_a_task_without_an_error_is_known_from_the_labels_of_its_output() -> None:
    text = "".join(f"{rank}: [rank{rank}]: {TIMED_OUT}\n" for rank in (0, 1))
    assert named(logs(slurm=PROGRESS + text)) == [("rank-silent", "silence", [2])]


NODE_FAIL = (
    "JobID|State|ExitCode|NodeList|Start|End|WorkDir\n2|NODE_FAIL|0:0|{}|2026-11-21T18:50:12|2026-11-21T18:50:16|/w\n"
)


def test_of_a_job_of_one_node_that_node_failed_and_of_several_none_is_accused() -> None:
    """A node whose daemon still runs is idle again when its job is diagnosed."""
    (cause,) = logs(state=NODE_FAIL.format("n1")).causes
    assert [culprit.host for culprit in cause.culprits] == ["n1"] and cause.confidence == "certain"
    output = "JobId=2 JobName=train\n   JobState=NODE_FAIL Reason=NodeDown\n   NodeList=n1\n   BatchHost=n1\n"
    (cause,) = logs(state=output).causes
    assert [culprit.host for culprit in cause.culprits] == ["n1"]
    for nodes in ("n[1-2]", "n1,n2", "n[1-", "None assigned"):
        (cause,) = logs(state=NODE_FAIL.format(nodes)).causes
        assert not cause.culprits


AGENT = (
    "torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: {0} (pid: 77{0}) of binary"
)
LISTED = """\
{0}: Root Cause (first observed failure):
{0}: [0]:
{0}:   time      : 2026-11-30_07:50:24
{0}:   host      : n{0}
{0}:   rank      : {1} (local_rank: {2})
{0}:   exitcode  : 1 (pid: 77{2})
"""
RAISED = (
    '{0}: Traceback (most recent call last):\n{0}:   File "t.py", line 4, in <module>\n{0}: ValueError: bad shard 17\n'
)


@pytest.mark.parametrize(("node", "rank"), [(0, 1), (1, 3)])
def test_the_label_of_srun_before_torchrun_is_no_rank(node: int, rank: int) -> None:
    """`srun --label torchrun`: the label is that of the node's agent; torch's own behind it is a rank."""
    peer = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:35230"
    text = f"{1 - node}: [rank{2 - 2 * node}]: RuntimeError: {peer}\n"
    text += RAISED.format(node) + f"{node}: E1130 07:50:25.820000 6988 " + AGENT.format(1) + "\n"
    (cause,) = logs(train=text + LISTED.format(node, rank, 1)).causes
    assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("python-exception", [rank])


def test_the_label_of_srun_before_a_rank_of_its_own_is_one() -> None:
    """`srun --label python`: each task is a rank."""
    (cause,) = logs(train="0: step 1\n" + RAISED.format(1) + "2: step 1\n").causes
    assert [culprit.rank for culprit in cause.culprits] == [1]
