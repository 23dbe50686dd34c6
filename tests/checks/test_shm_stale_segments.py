from doctor.engine.quantities import MIB
from doctor.facts.memory import IdleSegments, Segment
from tests.checks.run_check import advice, messages, run_check

NAME = "shm-stale-segments"


def test_nothing_left_behind_is_well() -> None:
    assert messages(run_check(NAME, {"a": [IdleSegments(files=(), sysv=())]})) == []


def test_a_few_pages_harm_nobody() -> None:
    crumbs = tuple(Segment(f"/dev/shm/sem.{number}", 4096, 9999) for number in range(100))
    assert messages(run_check(NAME, {"a": [IdleSegments(files=crumbs, sysv=())]})) == []


def test_what_dead_jobs_left_behind() -> None:
    files = (Segment("/dev/shm/nccl-x", 40 * MIB, 7200), Segment("/dev/shm/torch_77", 2 * MIB, 7200))
    outcome = run_check(NAME, {"a": [IdleSegments(files=files, sysv=(Segment("5", 6 * MIB, 700),))]})
    names = "/dev/shm/nccl-x, /dev/shm/torch_77 and segment 5"
    assert messages(outcome) == [("a", f"no process uses 48 MiB of shared memory that jobs left behind: {names}")]
    assert "`rm -- /dev/shm/nccl-x`, `rm -- /dev/shm/torch_77` and `ipcrm -m 5`" in advice(NAME, outcome)


def test_files_that_only_root_can_judge_leave_the_host_unknown() -> None:
    hidden = IdleSegments(files=(), sysv=(), unread={"/dev/shm": "3 files of other users"})
    assert run_check(NAME, {"a": [hidden]}).status.value == "unknown"
