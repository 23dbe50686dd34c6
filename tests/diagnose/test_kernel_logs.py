"""What the kernels of hosts said, beside the logs of a job: joined in time, and no fault of other programs."""

from __future__ import annotations

import os
import time

import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.excerpter import kernel_messages
from doctor.diagnose.fetch.excerpt_reading import collection_notes, read_record, unread_logs
from doctor.diagnose.fetch.saved_logs import SCHEMA, HostLogs, LogExcerpt, LogRecord
from doctor.diagnose.signature import Signature
from doctor.facts.kernel_faults import KernelFaultRow, fault_rows
from tests.diagnose.test_rules import SIGNATURES, logs
from tests.facts.kernel_samples import messages_of

WAITS = "2026-11-21 12:00:30 [rank{}]: RuntimeError: Timed out waiting 10000ms for recv operation to complete"
OOM = "Memory cgroup out of memory: Killed process {} ({}) total-vm:983040kB, anon-rss:640123kB"
DOWN = "mlx5_core 0000:5e:00.0: device's health compromised - reached miss count"


def excerpt(path: str, *lines: str, kernel: bool = False) -> LogExcerpt:
    kept = list(enumerate(lines, 1))
    return LogExcerpt(path, 9, 1.79e9, abs(hash(path)) % 10**6, 5, len(kept), 9, True, [], kept, kernel=kernel)


def judged(kernel: str, at: str = "12:00:21", job: dict[str, str] | None = None) -> Diagnosis:
    """Ranks 0 and 1 on n1 and n2 wait; the kernel of n2 says this."""
    job = job or {"n1": WAITS.format(0), "n2": WAITS.format(1)}
    hosts = {
        host: HostLogs([excerpt(f"/logs/rank_{rank}.log", "2026-11-21 11:59:00 step 1", line)])
        for rank, (host, line) in enumerate(job.items())
    }
    hosts["n2"].files.append(excerpt("kernel log", f"2026-11-21 {at} kernel: {kernel}", kernel=True))
    record = LogRecord(SCHEMA, "", "", (), 0.0, hosts)
    return diagnose(read_record(record, SIGNATURES), SIGNATURES, unread_logs(record))


def cause_rows(diagnosis: Diagnosis) -> list[tuple[str, list[str], str]]:
    return [(c.signature, [culprit.host for culprit in c.culprits], c.confidence) for c in diagnosis.causes]


def test_a_card_that_failed_before_the_ranks_timed_out_is_the_likely_cause() -> None:
    assert cause_rows(judged(DOWN)) == [("kernel-network-card", ["n2"], "likely")]


@pytest.mark.parametrize("at", ["09:12:00", "12:40:00"])
def test_what_the_kernel_said_at_another_time_is_not_the_jobs(at: str) -> None:
    diagnosis = judged(DOWN, at)
    assert not cause_rows(diagnosis)
    assert any("1 message of faults left out" in note for file in diagnosis.files for note in file.notes)


def test_a_python_that_was_killed_for_memory_is_a_cause_and_another_program_is_none() -> None:
    assert cause_rows(judged(OOM.format(4242, "python3"))) == [("host-oom-kill", ["n2"], "likely")]
    assert not cause_rows(judged(OOM.format(4242, "java")))


def test_beside_a_ranks_own_fault_the_kernel_of_another_host_accuses_nobody() -> None:
    raises = "2026-11-21 12:00:25 [rank0]: ValueError: bad batch"
    (cause,) = judged(DOWN, job={"n1": raises, "n2": WAITS.format(1)}).causes
    assert (cause.signature, cause.confidence) == ("python-exception", "certain")


def test_a_kernel_log_that_may_not_be_read_is_said_and_doubts_no_verdict() -> None:
    logs = HostLogs([excerpt("/logs/rank_0.log", WAITS.format(0))], kernel="Operation not permitted")
    record = LogRecord(SCHEMA, "", "", (), 0.0, {"n1": logs})
    assert not unread_logs(record)
    assert collection_notes(record) == [
        "n1: the kernel's messages cannot be read: Operation not permitted; --sudo reads them"
    ]


def test_the_messages_of_this_kernel_have_the_time_of_this_host() -> None:
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("needs /dev/kmsg")
    now = time.time()
    data, problem = kernel_messages.kernel_messages(now - 7200)  # type: ignore[no-untyped-call]
    stamps = [time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")) for line in data.decode().splitlines()]
    assert not problem and all(now - 7201 <= stamp <= time.time() + 1 for stamp in stamps)
    assert not kernel_messages.read_kmsg(now + 3600)  # type: ignore[no-untyped-call]


OF_KERNEL = [(item, fault_rows()[name]) for item in SIGNATURES.values() for name in item.kernel_faults]


@pytest.mark.parametrize(("signature", "row"), OF_KERNEL, ids=lambda item: item.id)
def test_what_a_check_knows_of_the_kernel_is_a_cause_of_a_failure(signature: Signature, row: KernelFaultRow) -> None:
    for text in messages_of(row.id):
        assert signature.id in {cause.signature for cause in logs(kernel=f"[ 1234.567890] {text}\n").causes}, text
