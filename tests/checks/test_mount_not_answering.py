"""What mount-not-answering finds."""

from __future__ import annotations

from doctor.facts.mounts import Mount, MountAnswers, MountTable
from tests.checks.run_check import messages, run_check, skipped

TABLE = MountTable(mounts=(Mount("/data", "nas1:/data", "nfs4"),))


def answers(state: str = "ok") -> MountAnswers:
    return MountAnswers(states={"/data": state})


def test_mounts_that_answer_and_hosts_without() -> None:
    assert messages(run_check("mount-not-answering", {"w1": [TABLE, answers()]})) == []
    assert skipped(run_check("mount-not-answering", {"w1": [MountTable(mounts=())]}))


def test_no_answer_and_errors() -> None:
    hosts = {"w1": [TABLE, answers("no answer")], "w2": [TABLE, answers("Stale file handle")]}
    assert messages(run_check("mount-not-answering", hosts)) == [
        ("w1", "/data (nfs4 from nas1:/data): no answer in 5 s"),
        ("w2", "/data (nfs4 from nas1:/data): Stale file handle"),
    ]
