"""A collective that nobody gets out of, while no link is known to lose anything."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor import smoke
from doctor.analysis.file_waits import FILE_WAITS, FileWait
from doctor.remote.runtime.kernel_waits import KERNEL_WAITS
from doctor.smoke.hang.detector import Detector
from doctor.smoke.hang.standstill import (
    RUNNING,
    collective_threads,
    explain_foreign_call,
    explain_standstill,
    explain_wrong_size,
    foreign_frame,
    held_by_files,
    occupations,
)
from doctor.smoke.model import Collective, Failure, Snapshot
from doctor.smoke.results.trouble_findings import blamed_hosts, remedy_for
from tests.checks.smoke import ran

IN_TORCH = (
    'Current thread 0x1:\n  File "/opt/torch/distributed/c10d.py", line 9 in all_reduce\n  File "w.py", line 1 in step'
)
IN_HOOK = f'Current thread 0x1:\n  File "/site/sitecustomize.py", line 3 in all_reduce\n{IN_TORCH[19:]}'


def standstill(*blocked: int, stacks: dict[int, str] | None = None, op: str = "all_reduce") -> Failure:
    waiting = tuple(rank for rank in range(4) if rank not in blocked)
    return Failure("network", blocked, waiting, (), "timeout", "training", op=op, seq=28, stacks=stacks or {})


def test_nobody_is_blamed_where_nothing_speaks_against_anybody() -> None:
    failure = explain_standstill(standstill(0, 1, 2, 3, stacks={0: IN_TORCH}), (), checked=True)
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("network", (), (0, 1, 2, 3))
    assert "every new connection is answered" in failure.evidence[0]
    assert blamed_hosts(ran(4, 2, failure), failure) == ()


def test_who_finished_what_the_others_cannot() -> None:
    failure = explain_standstill(standstill(0, 2, 3), (1,), checked=True)
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("left", (1,), (0, 2, 3))
    assert "finished all_reduce #28" in failure.text


def test_who_cannot_finish_what_all_others_have() -> None:
    failure = explain_standstill(standstill(1), (0, 2, 3), checked=True)
    assert (failure.kind, failure.culprit_ranks) == ("blocked", (1,))


def test_one_of_two_is_not_known() -> None:
    failure = explain_standstill(standstill(0, 1), (2, 3), checked=False)
    assert (failure.kind, failure.culprit_ranks) == ("left", (0, 1, 2, 3))
    assert "not known" in failure.text


def test_some_collectives_may_be_finished_by_some_ranks_alone() -> None:
    failure = explain_standstill(standstill(1, op="reduce"), (0, 2, 3), checked=True)
    assert failure.culprit_ranks == ()


def test_a_root_that_is_out_of_its_broadcast_alone_has_sent_nothing() -> None:
    failure = explain_standstill(standstill(1, op="broadcast"), (0,), checked=True)
    assert (failure.kind, failure.culprit_ranks) == ("left", (0,))


def test_a_rank_that_is_in_another_file_than_torchs() -> None:
    stacks = {0: IN_TORCH, 1: IN_HOOK, 2: IN_TORCH, 3: IN_TORCH}
    failure = explain_foreign_call(standstill(0, 1, 2, 3, stacks=stacks))
    assert (failure.kind, failure.culprit_ranks) == ("blocked", (1,))
    assert "sitecustomize.py:3 all_reduce" in failure.text
    assert foreign_frame(IN_TORCH) == "" == foreign_frame("")


def test_a_rank_that_computes_where_all_others_sleep_is_named_and_not_one_that_imports() -> None:
    stacks = dict.fromkeys(range(4), IN_TORCH)
    asleep = {"stage": "training", "state": "collective", "process": "S", "waits_for": "futex_wait_queue"}
    snaps = [Snapshot(rank=rank, stamp=1, effective=20.0, **asleep) for rank in (0, 1, 3)]  # type: ignore[arg-type]
    spins = Snapshot(rank=2, stamp=1, stage="training", state="collective", cpu=19.0, effective=20.0)
    occupied = occupations([*snaps, spins])
    failure = explain_foreign_call(standstill(0, 1, 2, 3, stacks=stacks), occupied)
    assert (failure.kind, failure.culprit_ranks) == ("blocked", (2,))
    assert "the CPU computes all the time" in failure.text
    importing = {**stacks, 2: f'{IN_TORCH}\n  File "<frozen importlib._bootstrap>", line 9 in _find_and_load'}
    for others in (standstill(0, 1, 2, 3, stacks=importing), standstill(0, 1, 2, 3)):
        assert explain_foreign_call(others, occupied).kind == "network"
    # One that ran for half a second, or waited for a CPU for most of the time, and all of them together.
    for late in ({"cpu": 0.5, "effective": 0.6}, {"cpu": 2.0, "effective": 20.0}):
        late_one = Snapshot(rank=2, stamp=1, stage="training", state="collective", **late)  # type: ignore[arg-type]
        assert 2 not in occupations([*snaps, late_one])
    everyone = dict.fromkeys(range(4), RUNNING)
    assert explain_foreign_call(standstill(0, 1, 2, 3, stacks=stacks), everyone).kind == "network"


def test_a_file_that_a_rank_waits_for_is_named_with_its_mount_and_server() -> None:
    wait = FileWait("/d/a.pt", ["/d", "nfs4", "nas1:/d"], 12.3, [(7, "tar")], "stat", "rpc_wait_bit_killable")
    held = "of /d/a.pt on /d (nfs4, nas1:/d) for 12 s; also held up there: pid 7 (tar), and waits for the server of a"
    blocked = Failure("blocked", (2,), (0, 1, 3), (), "timeout", "training")
    failure = held_by_files(blocked, [("w1", {2: wait}), ("w0", {-1: wait})])
    assert failure.text == f"it is blocked in stat {held} file system (NFS)"
    assert failure.evidence[0].startswith(f"w1: rank 2 is blocked in stat {held}")
    assert failure.evidence[1].startswith("w0: its interpreter is blocked in stat of /d/a.pt")
    assert "nfsstat -m" in remedy_for(failure.text, FILE_WAITS)
    several = msgspec.structs.replace(blocked, culprit_ranks=(1, 2), waiting_ranks=(0, 3))
    assert held_by_files(several, [("w1", {2: wait})]).text == f"rank 2 is blocked in stat {held} file system (NFS)"
    other = msgspec.structs.replace(blocked, text="at /site/hook.py:3 f, which is not torch")
    assert held_by_files(other, [("w1", {2: wait})]).text == other.text
    hostile = FileWait("/d/\x1b[2J" + "x" * 5000, ["\n" * 900], -1.0, [(1, "\x07" * 99)] * 99, "\x00", "x" * 9)
    text = held_by_files(blocked, [("w1", {2: hostile})]).text
    assert len(text) < 1500 and text.isprintable()


OUR_CALL, POOL = '"worker/comm.py", line 9 in all_reduce', '"/home/ann/worker.py", line 7 in act'


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        (('"<string>", line 1 in <module>', '"/home/ann/hook.py", line 7 in act'), "/home/ann/hook.py:7 act"),
        (
            ('"<frozen genericpath>", line 19 in exists', '"/home/ann/save.py", line 9 in save'),
            "/home/ann/save.py:9 save",
        ),
        (('"/usr/lib/python3.11/threading.py", line 5 in wait', '"worker/comm.py", line 97 in run_traced'), ""),
        (('"<string>", line 3 in forward', '"/site/torch/fx/graph_module.py", line 9 in call', OUR_CALL), ""),
        (('"/site/torch/futures/__init__.py", line 1 in wait', POOL, OUR_CALL), "/home/ann/worker.py:7 act"),
        (('"/site/torch/cuda/__init__.py", line 1 in synchronize', POOL, OUR_CALL), ""),
        (('"/site/torch/distributed/distributed_c10d.py", line 1 in all_reduce', POOL, OUR_CALL), ""),
    ],
)
def test_of_files_that_anybody_calls_the_caller_tells(frames: tuple[str, ...], expected: str) -> None:
    stack = "Current thread 0x1 (most recent call first):\n" + "\n".join(f"  File {frame}" for frame in frames)
    assert foreign_frame(stack + '\n  File "<string>", line 1 in <module>') == expected


SECOND = """Thread 0x2 (most recent call first):
  File "/site/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/site/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "{0}", line 4 in log_metrics
  File "/usr/lib/python3.11/threading.py", line 975 in run"""


def test_a_thread_that_calls_collectives_beside_the_main_one() -> None:
    """It takes what the others send to the main thread. A hook of the backward pass that calls ours is none."""
    stacks = {0: IN_TORCH, 1: IN_TORCH + "\n\n" + SECOND.format("/home/ann/metrics.py"), 2: IN_TORCH, 3: IN_TORCH}
    failure = explain_foreign_call(standstill(0, 1, 2, 3, stacks=stacks))
    assert (failure.kind, failure.culprit_ranks) == ("blocked", (1,))
    assert "another thread calls a collective, too, in /home/ann/metrics.py:4 log_metrics" in failure.text
    hook = explain_foreign_call(standstill(0, 1, stacks={1: IN_TORCH + "\n\n" + SECOND.format("worker/comm.py")}))
    assert hook.kind == "network"
    assert collective_threads(SECOND.format("/home/ann/metrics.py") + "\n\n" + IN_TORCH) != []


def within(function: str, op: str = "all_reduce") -> str:
    """A stack of a rank that is in torch's function, within our own call."""
    return (
        f'Current thread 0x1:\n  File "/site/torch/distributed/distributed_c10d.py", line 9 in {function}\n'
        f'  File "/site/torch/distributed/c10d_logger.py", line 83 in wrapper\n  File "worker/comm.py", line 97 in {op}'
    )


NEW_GROUP = (
    within("_new_process_group_helper").replace("c10d_logger", "distributed_c10d").replace("wrapper", "new_group")
)


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        ((within("all_reduce"), within("reduce"), within("all_reduce"), within("all_reduce")), (1,)),
        ((within("all_reduce"), within("barrier", "barrier"), within("all_reduce"), within("all_reduce")), ()),
        ((within("all_reduce"), within("reduce"), within("reduce"), within("reduce")), (1, 2, 3)),
        ((within("all_reduce"), within("reduce_scatter_tensor"), IN_TORCH, IN_TORCH), (1,)),
        ((within("all_reduce"), within("_get_default_group"), within("get_rank"), within("wrapper")), ()),
        ((within("reduce"), within("reduce"), within("barrier"), IN_TORCH), ()),
        ((within("all_reduce"), NEW_GROUP, within("all_reduce"), within("all_reduce")), (1,)),
        ((within("all_reduce"),) * 4, ()),
    ],
)
def test_a_rank_that_is_in_another_call_than_it_means_to_make(stacks: tuple[str, ...], named: tuple[int, ...]) -> None:
    """One that has gone on to its next call in the meantime is in that one. How many are right decides nothing."""
    failure = explain_foreign_call(standstill(0, 1, 2, 3, stacks=dict(enumerate(stacks))))
    assert (failure.kind, failure.culprit_ranks) == (("blocked", named) if named else ("network", (0, 1, 2, 3)))
    assert re.search("at (reduce(_scatter)?|new_group) of torch: another call", failure.text) or not named
    paired = standstill(0, 1, 2, 3, stacks=dict(enumerate(stacks)), op="send")
    assert explain_foreign_call(paired) == paired


@pytest.mark.parametrize(
    ("sleeping", "named"),
    [
        ({1: "hrtimer_nanosleep", 2: "futex_wait_queue"}, (1,)),
        ({2: "anon_pipe_write"}, (2,)),
        ({0: "rpc_wait_bit_killable", 1: "sk_wait_data", 2: "sk_stream_wait_memory"}, (0,)),
        ({1: "locks_lock_inode_wait.isra.0", 3: "wait_for_partner"}, (1, 3)),
        ({0: "futex_do_wait", 1: "ep_poll", 2: "do_poll.constprop.0", 3: "hrtimer_nanosleeper"}, ()),
        (dict.fromkeys(range(4), "hrtimer_nanosleep"), ()),
        ({9: "hrtimer_nanosleep"}, ()),
        *[
            ({1: function, 2: "futex_do_wait"}, (1,))
            for function in (
                "request_wait_answer",
                "p9_client_rpc",
                "autofs_wait",
                "wait_for_response",
                "ceph_mdsc_wait_request",
                "ptlrpc_set_wait",
                "ldlm_completion_ast",
                "cxiWaitEventWait",
                "percpu_rwsem_wait",
                "d_alloc_parallel",
            )
        ],
        # Of the network, of a device, and what any process sleeps in for a moment.
        ({1: "sk_wait_data", 2: "wait_for_completion"}, ()),
        ({1: "io_schedule", 2: "folio_wait_bit_common"}, ()),
        ({2: "fanotify_handle_event"}, (2,)),
    ],
)
def test_a_rank_whose_stack_is_not_known_and_that_waits_for_no_other(
    sleeping: dict[int, str], named: tuple[int, ...]
) -> None:
    failure = explain_foreign_call(standstill(0, 1, 2, 3), sleeping)
    assert failure.culprit_ranks == (named or (0, 1, 2, 3))
    assert failure.kind == ("blocked" if named else "network")


def test_each_file_system_that_a_rank_waits_for_has_its_own_advice() -> None:
    told = [meaning for kind, _, meaning in KERNEL_WAITS if kind.startswith("file.") and kind != "file.folder"]
    advice = {
        remedy_for(f"inside the call of all_reduce asleep in it, which waits for {text}; more", FILE_WAITS)
        for text in told
    }
    assert len(advice) == len(told) == 10 and "" not in advice
    assert (
        "of the kernel, which waits for the automounter (autofs)"
        in explain_foreign_call(standstill(0, 1, 2, 3), {1: "autofs_wait"}).text
    )


def test_where_the_ranks_of_a_standstill_sleep_is_known() -> None:
    detector = Detector(2)
    for tick in range(60):
        now = tick / 10
        asleep = {0: "futex_do_wait", 1: "hrtimer_nanosleep"}
        snaps = {rank: waits(rank, now, process="S", waits_for=asleep[rank]) for rank in range(2)}
        if detector.feed(snaps, now):
            break
    assert detector.transfer_rule.occupied == asleep


def waits(rank: int, now: float, **more: Any) -> Snapshot:
    call = Collective(0, 1, "all_reduce", "float32", 8, -1, 0, "training")
    fields = {"age": now, "effective": now, "entered": {0: 1}, **more}
    return Snapshot(
        1,
        stage="training",
        step=0,
        group=0,
        seq=1,
        op="all_reduce",
        dtype="float32",
        numel=8,
        rank=rank,
        state="collective",
        calls=(call,),
        **fields,
    )


def fed(seconds: float, **more: Any) -> Failure | None:
    detector, failure = Detector(2), None
    for tick in range(int(seconds * 10)):
        now = tick / 10
        snaps = {rank: waits(rank, now, **more) for rank in range(2)}
        failure = failure or detector.feed(snaps, now)
    return failure


def test_slow_is_not_silent() -> None:
    assert fed(30, idle=0.2) is None
    failure = fed(4, idle=4.0)
    assert failure and failure.kind == "network"


WRONG_SIZE = "op.preamble.length <= op.nbytes. 820 vs 412. Received data size doesn't match expected size."


def aborted(rank: int) -> Failure:
    waiting = tuple(other for other in range(4) if other != rank)
    return Failure("dead", (rank,), waiting, (), "certain", "collectives", op="all_reduce", seq=28, text="signal 6")


def test_a_rank_that_gloo_aborts_over_anothers_data_is_its_victim() -> None:
    failure = explain_wrong_size(aborted(2), (3,), WRONG_SIZE)
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("left", (3,), (0, 1, 2))
    assert any("820 vs 412" in sentence for sentence in failure.evidence)


def test_any_other_abort_is_that_ranks_own() -> None:
    assert explain_wrong_size(aborted(2), (3,), "CHECK failed: driver") == aborted(2)


def test_where_nobody_is_known_to_have_gone_on_an_abort_over_anothers_data_is_one_of_theirs() -> None:
    failure = explain_wrong_size(aborted(2), (), WRONG_SIZE, members=range(5))
    assert (failure.kind, failure.culprit_ranks, failure.certainty) == ("left", (0, 1, 2, 3, 4), "evidence")
    assert failure.text.startswith("rank 2 was sent data of another call")
    assert "may be the victim" in failure.evidence[-1]


@pytest.mark.parametrize(
    ("received", "expected", "culprit"),
    [
        (206, 104, 2),  # it takes half of the elements
        (412, 206, 3),  # the next one sends float64
        (412, 188, 3),
        (104, 52, None),
        (206, 188, None),
    ],
)
def test_lengths_tell_which_end_makes_another_call_than_it_records(
    received: int, expected: int, culprit: int | None
) -> None:
    failure = msgspec.structs.replace(aborted(2), numel=1021, dtype="bfloat16", group="world")
    error = f"op.preamble.length <= op.nbytes. {received} vs {expected}. Received data size doesn't match expected size"
    explained = explain_wrong_size(failure, (), error, members=range(5))
    assert (explained.kind, explained.culprit_ranks) == ("left", (0, 1, 2, 3, 4) if culprit is None else (culprit,))
    assert ("another call than recorded" in explained.text) == (culprit is not None)
    # Of a rank that has gone on to another call the records tell: it is that one.
    moved_on = explain_wrong_size(failure, (4,), error, members=range(5))
    assert moved_on.culprit_ranks == (4,)
    # Lengths of another operation are not known.
    gathered = msgspec.structs.replace(failure, op="all_gather")
    assert explain_wrong_size(gathered, (), error, members=range(5)).culprit_ranks == (0, 1, 2, 3, 4)


def test_several_links_of_one_host_are_laid_at_it() -> None:
    links = (("w1", "w3"), ("w2", "w3"))
    failure = Failure("network", (0, 1), (2,), certainty="evidence", stage="collectives", links=links)
    assert blamed_hosts(ran(3, 1, failure), failure) == ("w3",)
    sample_failure = Failure("network", (0, 1), (2,), certainty="evidence", stage="collectives", links=links[:1])
    assert blamed_hosts(ran(3, 1, sample_failure), sample_failure) == ("w1", "w3")


def test_what_is_said_of_ranks_has_no_pronoun_of_one() -> None:
    """It may be said of several: "ranks 1 and 2 never joined: it did not join"."""
    texts = {
        str(node.value)
        for folder in ("hang", "run")
        for path in Path(smoke.__file__).parent.joinpath(folder).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and re.match(r"\W*its? ", str(node.value))
    }
    of_one_rank = {"it {0}", "its interpreter", "its last error output: {0}"}
    of_one_host = {
        "it did not answer in time",
        "; its output: ",
        "its screening was interrupted",
        "; its own ranks do not reach it either",
        "; its kernel answers new connections, while its ranks do nothing that the others wait for",
    }
    assert texts == of_one_rank | of_one_host
