"""Reports of NCCL RAS: from the vendor's documentation and from public threads."""

from __future__ import annotations

from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import logs, named

TABLE = """
Communicators... (0.002s)
=============

Group     Comms      Nodes     Ranks     Ranks     Ranks   Status  Errors
    #  in group   per comm  per node  per comm  in group
    0         1          2         4         8         8  RUNNING  {0}

Errors
======

"""
BEHIND = (
    TABLE.format("MISMATCH")
    + """
#0-0 (78db921d1c117b4a) MISMATCH
  Communicator ranks have different AllReduce operation counts
  7 ranks have launched up to operation {0}
  Rank 7 has launched up to operation 60 -- GPU 3 managed by process 1650386 on node node1
"""
)
INCOMPLETE = (
    TABLE.format("INCOMPLETE")
    + """
INCOMPLETE
  Missing communicator data from 1 job process
  Process 3748990 on node node1 managing GPU 3

#0-0 (1bdb83b038775869) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 7 -- GPU 3 managed by process 3748990 on node node1
"""
)
DEAD = """
Communicators... (0.002s)
=============

No communicator data collected!

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3748990 on node node1 managing GPU 3
"""
TIMEOUT = (
    "[rank0]:[E1120 12:00:00.5 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=60, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds"
)


def test_a_difference_in_one_report_of_a_job_that_goes_on_is_no_failure() -> None:
    diagnosis = logs(ras=BEHIND.format(64))
    assert not diagnosis.failed and exit_code(diagnosis) == 12


def test_a_rank_that_does_not_go_on_between_two_reports_is_behind() -> None:
    diagnosis = logs(ras=BEHIND.format(64) + BEHIND.format(70))
    assert named(diagnosis) == [("nccl-ras-outlier", "behind in sequence", [7])]
    assert diagnosis.causes[0].culprits[0].host == "node1"


def test_a_rank_that_went_on_between_two_reports_is_not() -> None:
    later = BEHIND.format(70).replace("operation 60", "operation 66")
    assert not logs(ras=BEHIND.format(64) + later).causes


def test_a_rank_behind_in_one_report_of_a_job_that_failed_is_named() -> None:
    assert named(logs(ras=BEHIND.format(64), rank_0=TIMEOUT)) == [("nccl-ras-outlier", "behind in sequence", [7])]


def test_ranks_that_are_ahead_are_innocent() -> None:
    """https://github.com/NVIDIA/nccl/issues/1911"""
    ahead = BEHIND.replace("7 ranks have launched up to operation {0}", "7 ranks have launched up to operation 50")
    diagnosis = logs(ras=ahead + ahead, rank_0=TIMEOUT)
    assert not diagnosis.causes and diagnosis.undecidable and "7 of 8 ranks" in diagnosis.undecidable.reason


def test_a_dead_process_is_named_by_its_host_and_gpu() -> None:
    (cause,) = logs(ras=INCOMPLETE + DEAD).causes
    assert (cause.confidence, cause.culprits[0].host, cause.culprits[0].device) == ("likely", "node1", 3)


def test_a_process_that_did_not_answer_once_is_only_possible() -> None:
    assert [cause.confidence for cause in logs(ras=INCOMPLETE).causes] == ["possible"]
    assert [cause.confidence for cause in logs(ras=INCOMPLETE + INCOMPLETE).causes] == ["likely"]


def test_the_rank_in_a_communicator_that_is_not_the_only_one_of_its_size_is_not_one_in_the_world() -> None:
    several = BEHIND.replace("    0         1   ", "    0         4   ")
    (cause,) = logs(ras=several.format(64) + several.format(70)).causes
    assert (cause.culprits[0].rank, cause.culprits[0].host) == (None, "node1")


def test_a_healthy_report_is_no_failure() -> None:
    assert not logs(ras=TABLE.format("OK") * 3).failed
