"""What job-path-differs finds."""

from __future__ import annotations

from doctor.facts.path_contents import JobPaths, PathState
from tests.checks.run_check import advice, fleet, messages, run_check, skipped

VOCAB = PathState("file", 231508, 1, "07eced375cec144d")


def paths(state: PathState) -> JobPaths:
    return JobPaths(states={"/data/vocab.txt": state})


def test_equal_everywhere_and_nothing_asked() -> None:
    assert messages(run_check("job-path-differs", fleet(4, paths(VOCAB)))) == []
    assert skipped(run_check("job-path-differs", fleet(4, JobPaths(states={}))))


def test_another_content_and_a_missing_one() -> None:
    other, removed = PathState("file", 231508, 1, "ffff0000"), PathState("")
    hosts = {**fleet(3, paths(VOCAB)), "w4": [paths(other)], "w5": [paths(removed)]}
    assert messages(run_check("job-path-differs", hosts)) == [
        ("w5", "/data/vocab.txt is not there"),
        (
            "w4",
            f"/data/vocab.txt differs: {other.describe()}; on 3 of 4 hosts file of 231508 bytes, sha256 07eced37",
        ),
    ]


def test_without_a_majority_all_are_named() -> None:
    other = PathState("folder", 10, 2, "aaaa")
    outcome = run_check("job-path-differs", {"w1": [paths(VOCAB)], "w2": [paths(other)]})
    (finding,) = outcome.findings
    assert finding.hosts == ("w1", "w2")


def test_what_could_not_be_read_is_not_equal() -> None:
    large = PathState("large", problem="too large to be read in 45 s")
    fact = messages(run_check("job-path-differs", {**fleet(2, paths(VOCAB)), "w4": [paths(large)]}))
    assert fact == [("w4", "/data/vocab.txt: too large to be read in 45 s")]


def test_a_value_of_the_kernel_is_written_and_no_file_is_copied_onto_it() -> None:
    """rsync makes a file beside the old one, which /proc and /sys refuse: ``mkstemp ... failed``, exit code 23."""
    right, other = PathState("file", 0, 1, "95cf3270"), PathState("file", 3, 1, "94d5a385")
    for path, copied in (
        ("/proc/sys/vm/swappiness", False),
        ("//sys/./kernel/mm/ksm/run", False),
        ("/data/../sys/kernel/mm/ksm/run", False),
        ("/system/vocab.txt", True),
        ("/data/proc/vocab.txt", True),
    ):
        hosts = {**fleet(3, JobPaths(states={path: right})), "w4": [JobPaths(states={path: other})]}
        todo = advice("job-path-differs", run_check("job-path-differs", hosts))
        assert ("rsync" in todo) is copied, path
        assert ("umount" in todo) is not copied, path
