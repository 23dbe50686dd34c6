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


def test_the_remedy_is_that_of_the_file_system() -> None:
    kinds = ("nfs4", "fuse.sshfs", "fuse.juicefs", "lustre")
    table = MountTable(mounts=tuple(Mount(f"/{kind}", "nas1:/data", kind) for kind in kinds))
    states = MountAnswers(states={f"/{kind}": "no answer" for kind in kinds})
    found = run_check("mount-not-answering", {"w1": [table, states]}).findings
    remedies = [finding.values["remedy"] for finding in found]
    assert ["umount -f -l /nfs4" in remedies[0], "grep -i nfs`" in remedies[0]] == [True, True]
    assert "`fusermount -uz /fuse.sshfs` and `sshfs nas1:/data /fuse.sshfs`" in remedies[1]
    assert "fuse.juicefs" in remedies[2] and "sshfs" not in remedies[2]
    assert "grep -i lustre`" in remedies[3]


def test_no_answer_and_errors() -> None:
    hosts = {"w1": [TABLE, answers("no answer")], "w2": [TABLE, answers("Stale file handle")]}
    assert messages(run_check("mount-not-answering", hosts)) == [
        ("w1", "/data (nfs4 from nas1:/data): no answer in 5 s"),
        ("w2", "/data (nfs4 from nas1:/data): Stale file handle"),
    ]
