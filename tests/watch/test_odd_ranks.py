from __future__ import annotations

from typing import Any

import msgspec
import pytest

from doctor.watch.attach.odd_ranks import JobFinding, find_odd
from doctor.watch.attach.rank_activity import activity
from doctor.watch.attach.rank_report import HostReport, Look, ProcessReport

WAITS = [("wait", "/x/site-packages/torch/distributed/distributed_c10d.py", 10), ("main", "/job/train.py", 7)]
OTHER = [("broadcast", "/x/site-packages/torch/distributed/distributed_c10d.py", 99), ("main", "/job/train.py", 5)]
COMPUTES = [("spin", "/job/train.py", 3), ("main", "/job/train.py", 9)]
LOADER = [("_next_data", "/x/site-packages/torch/utils/data/dataloader.py", 3), ("main", "/job/train.py", 9)]


def looks(call: str = "futex", state: str = "S", *, file: str = "", ran: float = 0.0, switches: int = 0) -> list[Look]:
    return [Look(state, "", call, file, n * ran, n * switches, n * ran, 0) for n in range(3)]


def rank(
    number: int,
    observed_looks: list[Look] | None = None,
    stack: list[tuple[str, str, int]] | None = None,
    **fields: object,
) -> ProcessReport:
    report = ProcessReport(
        pid=100 + number,
        rank=number,
        world=4,
        job={"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
        variables={},
        user="ann",
        devices=[],
        tracer=0,
        frozen=False,
        children=[],
        looks=list(observed_looks if observed_looks is not None else looks()),
        tcp=[5000, 5000, 5000],
        stacks=[stack, stack] if stack else [],
        problem="",
    )
    return msgspec.structs.replace(report, **fields)


def host(*ranks: ProcessReport, py_spy: bool = True, local: bool = True) -> HostReport:
    return HostReport("node1", 4.0, py_spy, local, list(ranks), True, [])


def judged(*ranks: ProcessReport, local: bool = True) -> JobFinding:
    [finding] = find_odd({"node1": host(*ranks, local=local)})
    return finding


def test_ranks_that_the_user_did_not_ask_for_have_not_left() -> None:
    """`--pid` of one of two ranks that share a host: nothing is said of the other one."""
    alone = rank(1, looks("sleep"), world=2, variables={"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    [all_found] = find_odd({"node1": host(alone)})
    assert odd_rank_numbers(all_found) == [0]
    [partial] = find_odd({"node1": host(alone)}, partly=True)
    assert not partial.odd_ranks and partial.result == "undecided"
    assert "1 of 2 ranks was seen; the others were not examined (--pid)" in partial.notes


def odd_rank_numbers(finding: JobFinding) -> list[int | None]:
    return [odd_rank.rank for odd_rank in finding.odd_ranks]


@pytest.mark.parametrize("stack", [None, WAITS], ids=["proc", "stacks"])
@pytest.mark.parametrize(
    ("observed_looks", "own_entries", "text"),
    [
        (looks("futex", "T"), WAITS, "is stopped: kill -CONT 102"),
        (looks("sleep"), COMPUTES, "sleeps"),
        (looks("read", file="/tmp/fifo"), COMPUTES, "is blocked in read of /tmp/fifo"),
        (looks("read", file="stdin pipe"), COMPUTES, "waits for input from stdin"),
        (looks("read", "D", file="/nfs/data"), COMPUTES, "uninterruptible wait"),
    ],
)
def test_the_rank_that_the_others_wait_for(
    observed_looks: list[Look],
    own_entries: list[tuple[str, str, int]],
    text: str,
    stack: list[tuple[str, str, int]] | None,
) -> None:
    finding = judged(
        rank(0, None, stack),
        rank(1, None, stack),
        rank(2, observed_looks, own_entries if stack else None),
        rank(3, None, stack),
    )
    assert (finding.result, odd_rank_numbers(finding)) == ("odd", [2])
    assert text in finding.text
    assert "ranks 0-1,3 wait" in finding.text


def test_a_rank_that_waits_for_its_loader() -> None:
    finding = judged(rank(0, looks("poll"), LOADER), *(rank(n, None, WAITS) for n in (1, 2, 3)))
    assert odd_rank_numbers(finding) == [0]
    assert "data loader" in finding.text


def test_a_rank_in_another_collective() -> None:
    finding = judged(rank(0, None, WAITS), rank(1, None, OTHER), rank(2, None, WAITS), rank(3, None, WAITS))
    assert odd_rank_numbers(finding) == [1]
    assert "waits in broadcast (main at train.py:5)" in finding.text


def test_ranks_in_several_parts_of_one_call_make_nobody_odd() -> None:
    """`broadcast_object_list` with another source on one rank: not all are equally far."""
    library = "/x/site-packages/torch/distributed/distributed_c10d.py"

    def inside(line: int) -> list[tuple[str, str, int]]:
        return [("broadcast", library, 3000), ("broadcast_object_list", library, line), ("main", "/x/train.py", 5)]

    finding = judged(*(rank(n, None, inside(3700 if n == 2 else 3719)) for n in range(4)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "in one call of the program" in finding.text


@pytest.mark.parametrize(
    ("observed_looks", "seconds", "odd"),
    [
        (looks("sleep"), 80.0, []),
        (looks("sleep"), 3000.0, [2]),
        (looks("sleep"), -1.0, [2]),
        (looks("wait"), 80.0, []),  # its child sleeps
        (looks("wait"), -1.0, [2]),
        (looks("read", file="/tmp/fifo"), 80.0, []),  # who writes there sleeps
        (looks("read", file="/tmp/fifo"), -1.0, [2]),
    ],
)
def test_a_sleep_that_ends_before_long_holds_up_nobody_for_ever(
    observed_looks: list[Look], seconds: float, odd: list[int]
) -> None:
    own = rank(2, observed_looks, COMPUTES, sleeps_for=seconds)
    finding = judged(rank(0, None, WAITS), rank(1, None, WAITS), own, rank(3, None, WAITS))
    assert odd_rank_numbers(finding) == odd
    assert odd or "in 80 s at most: look again" in finding.text


@pytest.mark.parametrize(
    ("observed_looks", "fields", "odd"),
    [
        (looks(), {"ends_in": 80.0}, []),  # Event.wait(80)
        (looks("poll"), {"ends_in": 80.0}, []),
        (looks("poll"), {"ends_in": 3000.0}, [2]),
        (looks("poll"), {"ends_in": 80.0, "requests": [("pid 7 (nginx)", 30.0)]}, [2]),
        (looks("poll"), {"ends_in": 5.0, "stacks": [LOADER, LOADER]}, [2]),  # a look at the workers
    ],
    ids=["in a lock", "at a socket", "for long", "a server", "a loader"],
)
def test_a_wait_with_a_limit_ends_by_itself(
    observed_looks: list[Look], fields: dict[str, object], odd: list[int]
) -> None:
    own = rank(2, observed_looks, COMPUTES, **fields)
    finding = judged(rank(0, None, WAITS), rank(1, None, WAITS), own, rank(3, None, WAITS))
    assert [entry.pid for entry in finding.odd_ranks] == [100 + number for number in odd]


@pytest.mark.parametrize(("waited", "odd"), [(9.0, []), (599.0, []), (700.0, [2])])
@pytest.mark.parametrize("call", ["sleep", "sleep poll sleep", "running futex sleep"])
def test_who_looks_again_and_again_for_something_is_accused_when_the_others_have_waited_for_long(
    call: str, waited: float, odd: list[int]
) -> None:
    """Nothing shows whether what it looks for, such as a file, comes."""
    calls = call.split() * (1 if " " in call else 3)
    seen = [msgspec.structs.replace(look, call=name) for look, name in zip(looks(switches=8), calls, strict=True)]
    others = [rank(number, None, WAITS, off_cpu=waited) for number in (0, 1, 3)]
    finding = judged(rank(2, seen, COMPUTES, ends_in=0.4), *others)
    assert odd_rank_numbers(finding) == odd
    assert odd or ("rank 2" in finding.text and "may come yet: look again" in finding.text)


@pytest.mark.parametrize(
    ("calls", "switches", "tcp", "odd"),
    [
        ("running sleep sleep", (3, 5, 5), 5000, []),  # one sleep, which began within the look: a long step
        ("sleep sleep sleep", (3, 9, 9), 9000, []),  # it went through a step before
    ],
)
def test_a_sleep_that_began_within_the_look_ends_by_itself(
    calls: str, switches: tuple[int, ...], tcp: int, odd: list[int]
) -> None:
    seen = [
        msgspec.structs.replace(look, call=call, switches=count)
        for look, call, count in zip(looks(), calls.split(), switches, strict=True)
    ]
    own = rank(2, seen, COMPUTES, sleeps_for=5.0, tcp=[5000, tcp, tcp])
    finding = judged(rank(0, None, WAITS), rank(1, None, WAITS), own, rank(3, None, WAITS))
    assert odd_rank_numbers(finding) == odd
    assert odd or "in 5 s at most: look again" in finding.text


@pytest.mark.parametrize(
    ("observed_looks", "gets_results", "odd"),
    [
        (looks("sleep", switches=2), True, []),  # a producer, which sleeps between two objects
        (looks("sleep"), False, [2]),
        (looks("read", file="/tmp/fifo"), True, [2]),  # the main thread only looks after it
    ],
)
def test_a_thread_whose_results_reach_the_main_one_holds_up_nobody(
    observed_looks: list[Look], gets_results: bool, odd: list[int]
) -> None:
    own = rank(2, observed_looks, COMPUTES, thread=999, gets_results=gets_results)
    assert odd_rank_numbers(judged(rank(0, None, WAITS), rank(1, None, WAITS), own, rank(3, None, WAITS))) == odd


@pytest.mark.parametrize(
    ("observed_looks", "text"),
    [
        (looks("accept", file="socket"), "waits for a request, which may come yet"),
        (looks("accept"), "waits for a request, which may come yet"),
    ],
)
def test_who_may_go_on_is_not_named(observed_looks: list[Look], text: str) -> None:
    finding = judged(
        rank(0, None, WAITS), rank(1, None, WAITS), rank(2, observed_looks, COMPUTES), rank(3, None, WAITS)
    )
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert text in finding.text


@pytest.mark.parametrize(("owner", "odd"), [(100, [2, 0]), (999, []), (102, [])])
@pytest.mark.parametrize("call", ["sleep", "lock"])
def test_who_asks_for_what_a_waiting_rank_keeps_locked_is_named_with_it(owner: int, odd: list[int], call: str) -> None:
    """Though what may belong to its job works meanwhile. Another process may give the lock back."""
    asks: dict[str, Any] = {"lock_owners": [(owner, f"pid {owner} (python)")]}
    asks["children_ran"] = [0.0, 9.0 if call == "sleep" else 0.0]
    waits = rank(2, looks(call, switches=9 * (call == "sleep")), COMPUTES, **asks)
    finding = judged(rank(0, None, WAITS), rank(1, None, WAITS), waits, rank(3, None, WAITS))
    assert odd_rank_numbers(finding) == (odd if call == "sleep" or odd else [2])
    assert (
        not odd
        or finding.odd_ranks[1].text == "keeps locked what rank 2 asked for, and waits in wait (main at train.py:7)"
    )
    assert f"a file that it has open is locked by pid {owner} (python)" in finding.text


TRAINS = [("train_step", "/job/train.py", 30), ("main", "/job/train.py", 7)]
FORWARD = [("forward", "/x/site-packages/torch/distributed/utils.py", 3), *TRAINS]
BACKWARD = [
    ("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 8),
    ("train_step", "/job/train.py", 32),
    TRAINS[1],
]
DONE = [("barrier", "/x/site-packages/torch/distributed/distributed_c10d.py", 99), ("main", "/job/train.py", 8)]


@pytest.mark.parametrize(
    ("stacks", "odd"),
    [
        ((FORWARD, BACKWARD, DONE), [2]),
        ((FORWARD, BACKWARD, FORWARD[:1]), []),  # its program is not seen
        ((FORWARD, BACKWARD), []),
        ((FORWARD, DONE, BACKWARD, DONE), []),
        ((FORWARD, BACKWARD, [FORWARD[0]] * 40), []),  # cut
    ],
)
def test_who_is_not_in_the_step_that_the_others_are_in(
    stacks: tuple[list[tuple[str, str, int]], ...], odd: list[int]
) -> None:
    """DDP: one rank waits in the forward pass, another in the backward pass of the same step, the third behind it."""
    finding = judged(*(rank(n, None, stack, world=len(stacks)) for n, stack in enumerate(stacks)))
    assert odd_rank_numbers(finding) == odd, finding.text


def test_without_stacks_all_that_wait_look_alike() -> None:
    finding = judged(*(rank(n) for n in range(4)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "without their stacks" in finding.text


def test_all_wait_in_one_place() -> None:
    finding = judged(*(rank(n, None, WAITS) for n in range(4)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


def test_two_that_wait_for_each_other_make_nobody_odd() -> None:
    """Both receive first: the third waits for them in the next step."""
    receives = [("recv", WAITS[0][1], 77), ("main", "/job/train.py", 6)]
    pair = [rank(number, stack=receives, world=3) for number in (0, 1)]
    for finding in (
        judged(*pair, rank(2, stack=WAITS, world=3)),
        judged(rank(0, stack=receives), *map(waits, (1, 2, 3))),
    ):
        assert finding.result == "undecided" and not finding.odd_ranks and "send or recv" in finding.text
        assert "waits in recv (main at train.py:6)" in finding.text


def waits(number: int) -> ProcessReport:
    return rank(number, stack=WAITS)


def test_two_against_two_is_no_majority() -> None:
    finding = judged(*(rank(n, None, WAITS if n < 2 else OTHER) for n in range(4)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


def test_a_rank_that_has_gone() -> None:
    finding = judged(*(rank(n, None, WAITS) for n in (0, 1, 3)))
    assert odd_rank_numbers(finding) == [2]
    assert "rank 2 of 4 has no process any more; ranks 0-1,3 wait" in finding.text


def test_ranks_on_hosts_that_were_not_asked_have_not_gone() -> None:
    finding = judged(*(rank(n, None, WAITS) for n in (0, 1)), local=False)
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "2 of 4 ranks were seen" in finding.notes[0]


def test_ranks_in_containers_of_their_own_have_not_gone() -> None:
    """From inside one of them, only one rank is seen."""
    assert not odd_rank_numbers(judged(rank(3, None, WAITS)))


def test_the_launcher_says_how_many_ranks_a_host_has() -> None:
    here = {"LOCAL_WORLD_SIZE": "2"}
    finding = judged(rank(2, None, WAITS, variables={"LOCAL_RANK": "0", **here}), local=False)
    assert odd_rank_numbers(finding) == [3]


def test_a_job_whose_bytes_move_has_no_odd_rank() -> None:
    """Whatever its ranks do at the moments of the looks."""
    moving = [0, 90_000, 180_000]
    ranks = [rank(n, looks("running", "R", ran=2.0) if n == 2 else None, None, tcp=moving) for n in range(4)]
    assert (judged(*ranks).result, odd_rank_numbers(judged(*ranks))) == ("moves", [])


@pytest.mark.parametrize(
    ("samples", "result"),
    [
        ([("python3.11", 900), ("libm.so.6", 90)], "moves"),
        ([("libpython3.11.so.1.0", 900), ("libmpi.so.40", 90)], "moves"),
        ([("libmpi.so.40", 60), ("libopen-pal.so.40", 30), ("python3.11", 9)], "undecided"),
        ([("python3.11", 4)], "undecided"),
        ([], "undecided"),
    ],
)
def test_ranks_that_all_compute_have_no_odd_one(samples: list[tuple[str, int]], result: str) -> None:
    """Nor is a job healthy whose ranks may wait for each other on their CPUs."""
    ranks = [rank(n, looks("running", "R", ran=2.0), COMPUTES, samples=samples) for n in range(4)]
    assert (judged(*ranks).result, odd_rank_numbers(judged(*ranks))) == (result, [])


def test_a_job_whose_ranks_do_not_stand_still_has_no_odd_rank() -> None:
    ranks = [rank(n, looks(switches=500)) for n in range(4)]
    assert (judged(*ranks).result, odd_rank_numbers(judged(*ranks))) == ("moves", [])


def test_a_rank_that_writes_a_checkpoint_is_not_accused() -> None:
    writes = [Look("R", "", "running", "", n * 1.9, 0, n * 1.9, n * 90_000_000) for n in range(3)]
    finding = judged(rank(0, writes, COMPUTES), *(rank(n, None, WAITS) for n in (1, 2, 3)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "look again" in finding.text


def test_a_job_that_ends_well_loses_its_ranks() -> None:
    removed: list[Look | None] = [*looks()[:2], None]
    ended = msgspec.structs.replace(rank(0), looks=removed)
    moving = [rank(n, looks(switches=500), None, tcp=[0, 90_000, 180_000]) for n in (1, 2, 3)]
    assert (judged(ended, *moving).result, odd_rank_numbers(judged(ended, *moving))) == ("moves", [])


def test_the_last_rank_of_a_job_that_falls_apart_is_not_accused() -> None:
    """The first to go has no process any more, and nobody is left who waits for it."""
    removed: list[Look | None] = [*looks()[:2], None]
    ended = msgspec.structs.replace(rank(0), looks=removed)
    assert (judged(ended).result, odd_rank_numbers(judged(ended))) == ("undecided", [])
    waits = judged(ended, *(rank(n, None, WAITS) for n in (1, 2, 3)))
    assert odd_rank_numbers(waits) == [0]


@pytest.mark.parametrize("fields", [{"world": 1}, {"rank": None, "world": 0, "links": ["10.0.0.1:5>10.0.0.9:6"]}])
def test_a_process_alone_that_ended_has_left_nobody(fields: dict[str, Any]) -> None:
    """As a program that has done its work while it was looked at."""
    finding = judged(rank(0, looks=[*looks()[:2], None], **fields))
    assert (finding.result, finding.odd_ranks) == ("undecided", ())
    assert "ended during the look" in finding.text


def test_a_job_that_is_over_accuses_no_rank() -> None:
    removed: list[Look | None] = [*looks()[:2], None]
    ended = [msgspec.structs.replace(rank(n), looks=removed) for n in range(4)]
    finding = judged(*ended)
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "ended during the look" in finding.text
    waits = judged(*ended[:3], rank(3, None, WAITS))
    assert odd_rank_numbers(waits) == [0, 1, 2]


def test_ranks_that_cannot_be_read_are_unknown() -> None:
    finding = judged(*(rank(n, looks("?", switches=500)) for n in range(4)))
    assert finding.result == "undecided"
    assert "--sudo" in finding.text


SPINS = [("libopen-pal.so.40.30.2", 300), ("mca_btl_vader.so", 200), ("libc.so.6", 400), ("[vdso]", 60)]


def spinning(number: int, samples: list[tuple[str, int]], *, switches: int = 0) -> ProcessReport:
    return rank(number, looks("running", "R", ran=1.9, switches=switches), samples=samples)


def test_ranks_of_mpi_that_spin_in_their_wait_wait_for_the_one_that_rests() -> None:
    waiting = [spinning(number, SPINS) for number in (0, 2, 3)]
    finding = judged(rank(1, looks("sleep")), *waiting)
    assert (finding.result, odd_rank_numbers(finding)) == ("odd", [1])
    assert finding.ranks[1].does.text == "waits within libopen-pal.so.40.30.2, on its CPU"


def test_ranks_that_compute_beside_their_communication_wait_for_nobody() -> None:
    waiting = [spinning(number, [*SPINS, ("solver", 300)]) for number in (0, 2, 3)]
    assert judged(*waiting, spinning(1, [("solver", 900)])).result == "moves"
    finding = judged(rank(1, looks("sleep")), *waiting)
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])
    assert "Others compute, and may wait so for it" in finding.text


def test_ranks_of_mpi_that_also_sleep_move() -> None:
    """Steps of two seconds: each rank sleeps, and spins until all have come."""
    slept = rank(1, looks("sleep", ran=0.01, switches=2))
    finding = judged(slept, *(spinning(number, SPINS, switches=2) for number in (0, 2, 3)))
    assert odd_rank_numbers(finding) == []
    finding = judged(slept, *(spinning(number, SPINS) for number in (0, 2, 3)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


SOLVES = [("solver", 900)]


@pytest.mark.parametrize(
    ("seconds", "changed", "named"),
    [
        (20.0, {}, [1]),
        (20.0, {"register_values": 9}, []),  # an insertion sort of its own: one function, one place
        (20.0, {"register_values": 0}, []),
        (4.0, {}, []),
        (20.0, {"shared": [7, 7, 8]}, []),
        (20.0, {"shared": [7, -1, 7]}, []),
        (20.0, {"shared": []}, []),
        (20.0, {"tcp": [5000, 5000, 5064]}, []),
        (20.0, {"samples": [("solver", 500), ("libmpi.so.40.30.4", 20)]}, []),
        (20.0, {"samples": [("libtorch_cpu.so", 500), ("solver", 500)], "register_values": 9}, []),
        (20.0, {"devices": ["/dev/nvidia0"], "shared": [-1, -1, -1]}, []),
    ],
)
def test_beside_ranks_of_mpi_that_spin_one_that_only_looks_is_named_where_no_message_passed(
    seconds: float, changed: dict[str, list[object]], named: list[int]
) -> None:
    """Never for certain. One that gets on, or may, is not: it has work of its own. A message may come by a device."""
    waiting = [
        rank(number, looks("running", "R", ran=0.45 * seconds), samples=SPINS, shared=[7, 7, 7]) for number in (0, 2, 3)
    ]
    fields: dict[str, object] = {"samples": SOLVES, "register_values": 2, "shared": [7, 7, 7], **changed}
    seen = host(rank(1, looks("running", "R", ran=0.45 * seconds), **fields), *waiting)
    [finding] = find_odd({"node1": msgspec.structs.replace(seen, seconds=seconds)})
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", named)
    assert ("No message passed meanwhile" in finding.text) is bool(named)
    assert finding.may_be_slow is not bool(named)


def unnamed(pid: int, *frames: tuple[str, str], call: str = "sleep", **pace: float) -> ProcessReport:
    stack = [(name, path, 7) for name, path in frames]
    return rank(0, looks(call, **pace), stack, rank=None, pid=pid, world=0, job={}, group=50)  # type: ignore[arg-type]


REDUCES = (("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py"), ("tp_worker", "/job/serve.py"))
ASKS = (("recv", "/x/site-packages/zmq/sugar/socket.py"), ("server", "/job/serve.py"))
POLLS = (("core", "/job/serve.py"), ("start", "/job/serve.py"))
MAIN_LOOP = ("Worker.main_loop", "/x/site-packages/ray/_private/worker.py")
GETS = (("Worker.get_objects", "/x/site-packages/ray/_private/worker.py"), ("fit", "/job/driver.py"))


GRPC_CALL = (("_UnaryUnaryMultiCallable._blocking", "/x/site-packages/grpc/_channel.py"), ("ask", "/job/driver.py"))
GRPC_HANDLER = (("generate", "/job/serve.py"), ("_call_behavior", "/x/site-packages/grpc/_server.py"))
IN_CONDITION = (("Condition.wait", "/x/lib/python3.11/threading.py"), *GRPC_HANDLER)


@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (unnamed(51, *GRPC_HANDLER), "odd"),
        (unnamed(51, *GRPC_HANDLER, call="recv"), "odd"),
        (unnamed(51, *GRPC_HANDLER, call="futex"), "odd"),
        (unnamed(51, *IN_CONDITION, call="futex"), "undecided"),  # until the other one calls, too
        (unnamed(51, *GRPC_HANDLER, switches=9, ran=0.1), "undecided"),
        (unnamed(51, ("serve", "/job/serve.py")), "undecided"),
    ],
    ids=["sleeps", "asks a silent server", "lock", "barrier", "moves", "no call"],
)
def test_who_does_not_answer_a_call_of_grpc_is_odd(handler: ProcessReport, result: str) -> None:
    others = [unnamed(54, ("work", "/job/other.py"), call="poll")] if result == "undecided" else []
    finding = judged(unnamed(50, *GRPC_CALL, call="poll"), handler, *others)
    assert (finding.result, [odd_rank.pid for odd_rank in finding.odd_ranks]) == (result, [51] * (result == "odd"))


IN_COMM = (("init_distributed", "/x/site-packages/deepspeed/comm/comm.py"), ("<module>", "/job/train.py"))
BUILDS = (("run", "/x/lib/python3.11/subprocess.py"), ("_jit_compile", "/x/site-packages/torch/utils/cpp_extension.py"))
LOCKED = (("FileBaton.wait", "/x/site-packages/torch/utils/file_baton.py"), BUILDS[1])


def building(number: int, *frames: tuple[str, str], **pace: object) -> ProcessReport:
    return rank(number, looks(**pace), [(name, path, 7) for name, path in (*frames, *IN_COMM)], world=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("children_ran", "result"),
    [([0.0, 3.9], "undecided"), ([31.0, 12.0], "undecided"), ([0.0, 0.0], "odd")],
    ids=["compiles", "has compiled", "hangs"],
)
def test_while_one_rank_builds_an_extension_the_others_wait_for_it(children_ran: list[float], result: str) -> None:
    """DeepSpeed's operations are built within `init_distributed`, which is no collective then."""
    builder = building(0, *BUILDS, call="read", file="pipe:[7]")
    others = building(1, *LOCKED, call="sleep", switches=40)
    finding = judged(msgspec.structs.replace(builder, children_ran=children_ran), others)
    assert (finding.result, odd_rank_numbers(finding)) == (result, [0] if result == "odd" else [])


@pytest.mark.parametrize(
    ("children_ran", "switches", "result"),
    [([0.0, 9.0], 0, "undecided"), ([], 400, "undecided"), ([0.0, 0.1], 2, "odd"), ([], 2, "odd")],
    ids=["its loader computes", "it gets one object after the other", "its loader rests", "no child"],
)
def test_a_rank_whose_loader_works_is_not_accused(children_ran: list[float], switches: int, result: str) -> None:
    """A wait for one batch wakes up every five seconds: torch/utils/data/_utils, MP_STATUS_CHECK_INTERVAL."""
    waits = rank(0, looks("poll", switches=switches), LOADER, children_ran=children_ran)
    assert judged(waits, *(rank(n, None, WAITS) for n in (1, 2, 3))).result == result


@pytest.mark.parametrize(
    ("calls", "threads_ran", "result"),
    [
        ("futex futex futex", 0.3, "undecided"),
        ("futex futex futex", 0.02, "odd"),
        ("futex running futex", 0.9, "undecided"),  # as a compiler within the process
        ("futex poll futex", 0.02, "odd"),
    ],
)
def test_a_rank_that_waits_for_threads_of_its_own_while_they_compute(
    calls: str, threads_ran: float, result: str
) -> None:
    """On a busy host threads that share one interpreter get a small part of a CPU."""
    stack = [("Condition.wait", "/x/lib/python3.11/threading.py", 9), ("score", "/job/train.py", 7)]
    seen = [
        msgspec.structs.replace(look, call=call, all_ran=n * threads_ran / 2)
        for n, (look, call) in enumerate(zip(looks(), calls.split(), strict=True))
    ]
    assert judged(rank(0, seen, stack, world=2), rank(1, looks(), world=2)).result == result


def test_the_lock_that_a_build_has_left_is_named() -> None:
    finding = judged(*(building(number, *LOCKED, call="sleep", switches=40) for number in (0, 1)))
    assert finding.result == "undecided" and "find ~/.cache/torch_extensions -name lock -delete" in finding.text


def test_of_a_serving_group_the_worker_that_is_not_with_its_fellows_is_odd() -> None:
    held = unnamed(51, ("flock", "/job/cache.py"), ("tp_worker", "/job/serve.py"), call="lock")
    roles = [unnamed(50, *ASKS, call="poll"), unnamed(54, *POLLS, ran=0.1, switches=900)]
    finding = judged(held, *roles, *(unnamed(pid, *REDUCES) for pid in (52, 53)))
    assert [odd_rank.pid for odd_rank in finding.odd_ranks] == [51]


def test_a_worker_of_a_serving_group_that_looks_again_and_again_is_told_and_not_accused() -> None:
    """As for the lock of a kernel's cache, which may be given up. One that stands still holds its fellow up."""
    polls = unnamed(51, ("acquire", "/job/cache.py"), ("tp_worker", "/job/serve.py"), call="sleep", switches=70)
    idle = [unnamed(pid, ("recv", f"/job/{pid}.py"), call="poll") for pid in (50, 54, 55)]
    finding = judged(polls, *idle, unnamed(52, *REDUCES))
    assert (finding.result, [view.report.pid for view in finding.may_go_on]) == ("undecided", [51])
    assert "(pid 51 on node1) sleeps" in finding.text and "looks again and again" in finding.text
    held = unnamed(53, ("flock", "/job/cache.py"), ("tp_worker", "/job/serve.py"), call="lock")
    assert [odd.pid for odd in judged(polls, held, *idle, unnamed(52, *REDUCES)).odd_ranks] == [53]


def test_of_processes_that_wait_for_input_the_one_that_does_not_is_told_and_not_accused() -> None:
    idle = [unnamed(pid, ("recv", f"/job/{pid}.py"), call="poll") for pid in (50, 51, 52)]
    for call, text in (("futex", "or for a lock (detokenize at serve.py:7)"), ("sleep", "sleeps (detokenize")):
        finding = judged(*idle, unnamed(53, ("detokenize", "/job/serve.py"), call=call))
        assert (finding.result, finding.odd_ranks) == ("undecided", ())
        assert finding.text.startswith("pid 53 (pid 53 on node1)") and text in finding.text
    assert "make no progress" in judged(*idle).text


def test_who_waits_for_the_answer_of_a_worker_is_not_held_up_by_itself() -> None:
    """The server waits for another service, and its connection to the client is among those that it waits for."""
    client = unnamed(50, ("ask_http", "/job/client.py"), call="recv")
    held = unnamed(
        51, ("ask_scorer", "/job/serve.py"), ("WorkerThread.run", "/x/site-packages/anyio/_a.py"), call="recv"
    )
    asks = msgspec.structs.replace(client, awaits=[51])
    asked = msgspec.structs.replace(held, awaits=[50], requests=[("", -1.0)])
    ranks = [unnamed(pid, *REDUCES) for pid in (52, 53)]
    assert [odd_rank.pid for odd_rank in judged(asks, asked, *ranks).odd_ranks] == [51]
    # Without a request it is not known which of them waits for the other.
    both = judged(asks, msgspec.structs.replace(asked, requests=[]), *ranks)
    assert {odd_rank.pid for odd_rank in both.odd_ranks} >= {51}


def test_a_serving_group_without_work_is_not_accused() -> None:
    idle = (("acquire_read", "/x/site-packages/vllm/distributed/device_communicators/shm_broadcast.py"),)
    workers = [unnamed(pid, *idle) for pid in (51, 52, 53)]
    for monitor in (unnamed(54, ("watch_memory", "/job/monitor.py")), unnamed(54, *POLLS, ran=0.1, switches=900)):
        finding = judged(unnamed(50, *ASKS, call="poll"), *workers, monitor)
        assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


WORKER = ("WorkerProc.worker_main", "/x/site-packages/vllm/v1/executor/multiproc_executor.py")
SHARED_MEMORY = (("_CPUSHMDistributed.all_reduce", "/x/site-packages/vllm/distributed/cpu_communicator.py"), WORKER)
HELD = (("step", "/job/plugin.py"), WORKER)
TURNED = [("_C.abi3.so", 523)]
"""Seen with vLLM 0.32 on CPUs: all samples in one library, and at most 2 values of each register."""


def serving_group(*, held: dict[str, object], beside: dict[str, object]) -> JobFinding:
    """A client, its engine, and two workers: one is held up, the other stays on its CPU beside it."""
    client = unnamed(50, ("Condition.wait", "/x/lib/python3.11/threading.py"), ("main", "/job/a.py"), call="futex")
    engine = unnamed(51, ("Poller.poll", "/x/site-packages/zmq/sugar/poll.py"), call="poll")
    workers = [
        msgspec.structs.replace(unnamed(pid, *stack, call="running"), **fields)
        for pid, stack, fields in ((52, HELD, held), (53, SHARED_MEMORY, beside))
    ]
    return judged(client, engine, *workers)


ON_ITS_CPU = looks("running", "R", ran=1.9)
RESTING = {
    "lock": looks("futex"),
    "socket": looks("recv", file="a socket"),
    "sleep": looks("sleep"),
    "file": looks("lock", file="/tmp/cache.lock"),
    "child": looks("wait"),
    "endless loop": ON_ITS_CPU,
}


@pytest.mark.parametrize("how", RESTING)
def test_beside_a_worker_that_only_looks_at_shared_memory_the_one_that_is_held_up_is_odd(how: str) -> None:
    finding = serving_group(
        held={"looks": RESTING[how], "samples": [("python3.11", 900)] if how == "endless loop" else []},
        beside={"looks": ON_ITS_CPU, "samples": TURNED, "register_values": 2},
    )
    loops = how == "endless loop"  # as a step that takes long does
    assert (finding.result, [odd_rank.pid for odd_rank in finding.odd_ranks]) == (
        ("undecided", []) if loops else ("odd", [52])
    )
    assert not loops or "(pid 52 on node1) computes (step at plugin.py:7)" in finding.text
    assert finding.ranks[3].does.text == "waits within _C.abi3.so, on its CPU"


@pytest.mark.parametrize("how", RESTING)
@pytest.mark.parametrize(
    "beside",
    [
        {"register_values": 0},
        {"register_values": 90},
        {"register_values": 2, "devices": ["/dev/davinci0"]},
        {"register_values": 2, "samples": [("python3.11", 900)]},
        {"register_values": 2, "samples": [("libpython3.11.so.1.0", 900)]},
        {"register_values": 2, "samples": [("_C.abi3.so", 200), ("python3.11", 20)]},
        {"register_values": 2, "samples": [("_C.abi3.so", 5)]},
    ],
)
def test_beside_one_that_may_compute_or_wait_at_one_place_nobody_is_accused_and_nothing_healthy(
    how: str, beside: dict[str, object]
) -> None:
    """A long multiplication, a device, an empty loop, or no samples of registers."""
    finding = serving_group(held={"looks": RESTING[how]}, beside={"looks": ON_ITS_CPU, "samples": TURNED, **beside})
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


def test_a_worker_that_gets_on_beside_one_that_rests_is_not_held_up() -> None:
    """A stage of a pipeline rests until the one before it has computed, whose stack changes and which also sleeps."""
    other = [("linear", "/x/site-packages/torch/nn/functional.py", 9), (*WORKER, 7)]
    for fields in ({"stacks": [other, other[1:]]}, {"looks": looks("running", "R", ran=1.9, switches=40)}):
        beside = {"looks": ON_ITS_CPU, "samples": [("libtorch_cpu.so", 900)], "register_values": 90, **fields}
        finding = serving_group(held={"looks": RESTING["socket"]}, beside=beside)
        assert (finding.result, odd_rank_numbers(finding)) == ("moves", [])


def test_beside_one_that_only_looks_at_shared_memory_a_worker_that_computes_is_not_accused() -> None:
    held = {"looks": ON_ITS_CPU, "samples": [("libtorch_cpu.so", 900)], "register_values": 90}
    finding = serving_group(held=held, beside={"looks": ON_ITS_CPU, "samples": TURNED, "register_values": 2})
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


@pytest.mark.parametrize("asked", [True, False])
def test_a_task_of_ray_is_odd_where_its_result_is_waited_for(asked: bool) -> None:
    idle = [unnamed(pid, MAIN_LOOP, call="futex") for pid in (51, 52)]
    held = unnamed(53, ("call_tool", "/job/tools.py"), MAIN_LOOP, call="recv")
    driver = [unnamed(50, *GETS, call="futex")] if asked else []
    assert [odd_rank.pid for odd_rank in judged(held, *idle, *driver).odd_ranks] == [53] * asked
    busy = unnamed(53, ("generate", "/job/model.py"), MAIN_LOOP, call="running", ran=1.9)
    assert not judged(busy, *idle, *driver).odd_ranks


@pytest.mark.parametrize("stacks", [2, 1], ids=["still", "one stack differs"])
def test_a_task_of_ray_in_a_collective_is_not_odd_beside_the_one_that_it_waits_for(stacks: int) -> None:
    """Seen with ray 2.60 on a busy host, where the first stack was taken before the call."""
    sleeps = unnamed(51, ("step", "/job/trainer.py"), MAIN_LOOP)
    reduces = unnamed(52, REDUCES[0], ("step", "/job/trainer.py"), MAIN_LOOP, call="futex")
    reduces = msgspec.structs.replace(reduces, stacks=[reduces.stacks[0][2 - stacks :], reduces.stacks[0]])
    finding = judged(sleeps, reduces, unnamed(50, *GETS, call="futex"))
    assert [odd_rank.pid for odd_rank in finding.odd_ranks] == [51]


def test_tasks_of_ray_that_wait_for_each_other_are_named_and_not_accused() -> None:
    pair = [unnamed(pid, GETS[0], ("call", "/job/actors.py"), MAIN_LOOP, call="futex") for pid in (51, 52)]
    finding = judged(*pair, unnamed(53, MAIN_LOOP, call="futex"), unnamed(50, *GETS, call="futex"))
    assert (finding.result, [odd_rank.pid for odd_rank in finding.odd_ranks]) == ("undecided", [51, 52])
    assert finding.text.startswith("pid 51 (pid 51 on node1) waits for results of tasks of Ray (call at actors.py:7); ")
    assert "pid 50 waits. Each waits for another" in finding.text
    elsewhere = msgspec.structs.replace(pair[0], links=["10.0.0.1:5>10.0.0.2:6"])
    assert not judged(elsewhere, pair[1], unnamed(50, *GETS, call="futex")).odd_ranks


LOOPS = (("select", "/lib/python3.11/selectors.py"), ("_run_once", "/lib/python3.11/asyncio/base_events.py"))


@pytest.mark.parametrize(("ends_in", "named"), [(-1.0, [51]), (600.0, [])])
def test_a_task_of_ray_that_waits_for_an_event_of_another_is_likely_unless_that_sleeps(
    ends_in: float, named: list[int]
) -> None:
    """As seen with ray 2.60: an actor whose method is a coroutine that awaits an asyncio.Event, or sleeps."""
    asks = unnamed(51, GETS[0], ("call", "/job/actors.py"), MAIN_LOOP, call="futex")
    signal = msgspec.structs.replace(unnamed(52, *LOOPS, call="poll"), task="Signal.wait", ends_in=ends_in)
    finding = judged(asks, signal, unnamed(53, MAIN_LOOP, call="futex"), unnamed(50, *GETS, call="futex"))
    assert (finding.result, [odd_rank.pid for odd_rank in finding.odd_ranks]) == ("undecided", named)
    assert ("Pid 52 is in Signal.wait meanwhile" if named else "goes on by itself, in 600 s") in finding.text


def test_a_task_of_ray_that_waits_for_an_event_of_its_own_process_is_likely_where_all_others_have_no_work() -> None:
    """As seen with ray 2.60: `threading.Event().wait()` in a method, beside idle actors; another call may set it."""
    waits_for_event = (("wait", "/lib/python3.11/threading.py"), ("step", "/job/actors.py"), MAIN_LOOP)
    task, driver = unnamed(51, *waits_for_event, call="futex"), unnamed(50, *GETS, call="futex")
    finding = judged(task, unnamed(53, MAIN_LOOP, call="futex"), driver)
    assert (finding.result, [odd_rank.pid for odd_rank in finding.odd_ranks]) == ("undecided", [51])
    works = msgspec.structs.replace(task, children_ran=[0.0, 2.0])
    far = msgspec.structs.replace(driver, links=["10.0.0.1:5>10.0.0.2:6"])
    for reports in ((works, driver), (task, far), (task, unnamed(53, MAIN_LOOP, call="futex"))):
        assert judged(*reports).odd_ranks == ()


def test_beside_a_server_that_computes_a_client_that_waits_for_it_is_not_healthy() -> None:
    """Seen with SGLang's router: one of its servers in an endless loop that does not stay at one place."""
    client = unnamed(50, ("ask", "/job/client.py"), call="poll")
    server = unnamed(51, ("step", "/job/serve.py"), call="running", ran=1.9, switches=9)
    server = msgspec.structs.replace(server, samples=[("libtorch_cpu.so", 900)])
    asked = msgspec.structs.replace(client, answering=[("pid 52 (router)", False)])
    assert [judged(view, server).result for view in (client, asked)] == ["moves", "undecided"]


def polling(number: int, *, is_here: bool = True, **fields: object) -> ProcessReport:
    loop = ("while not os.path.exists(path)", ["path = '/job/done'"], is_here)
    return rank(number, looks("sleep", switches=8), COMPUTES, polled=loop, **fields)


@pytest.mark.parametrize(
    ("changed", "named"), [({}, [2]), ({"is_here": False}, []), ({"children_ran": [0.0, 3.0]}, [])]
)
def test_who_polls_for_what_only_its_host_brings_is_likely_unless_something_works_for_it(
    changed: dict[str, Any], named: list[int]
) -> None:
    finding = judged(rank(0, None, WAITS), rank(1, None, WAITS), polling(2, **changed), rank(3, None, WAITS))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", named)
    assert "it looks again and again: while not os.path.exists(path), path = '/job/done'" in finding.text


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (rank(0, looks("futex"), COMPUTES), [0]),
        (rank(0, looks("wait"), COMPUTES, sleeps_for=30.0), []),
        (rank(0, looks("running", ran=1.9), COMPUTES), []),
        (rank(0, looks("poll"), COMPUTES), []),  # it may be a server without work
    ],
)
def test_where_all_others_poll_the_one_that_does_not_is_likely(other: ProcessReport, named: list[int]) -> None:
    finding = judged(other, *(polling(number) for number in (1, 2, 3)))
    assert (odd_rank_numbers(finding), finding.result) == (named, "undecided")


@pytest.mark.parametrize("asked", ["still", "in another line", ""])
def test_a_task_of_ray_that_computes_in_one_function_is_neither_accused_nor_healthy(asked: str) -> None:
    """A long rollout in pure Python and an endless loop look alike, also where whoever asks for the result wakes up."""
    loop = unnamed(53, ("spin", "/job/tools.py"), MAIN_LOOP, call="running", ran=1.9)
    loop = msgspec.structs.replace(loop, samples=[("python3.11", 900)])
    driver = unnamed(50, *GETS, call="futex")
    if asked != "still":
        driver = msgspec.structs.replace(driver, stacks=[driver.stacks[0][1:], driver.stacks[0]])
    finding = judged(loop, unnamed(52, MAIN_LOOP, call="futex"), *[driver] * bool(asked))
    assert finding.odd_ranks == () and finding.result == ("undecided" if asked else "moves")
    assert ("pid 53" in finding.text) == bool(asked)
    same = msgspec.structs.replace(loop, register_values=3)
    named = judged(same, unnamed(52, MAIN_LOOP, call="futex"), *[driver] * bool(asked)).odd_ranks
    assert [odd_rank.pid for odd_rank in named] == ([53] if asked else [])


RECEIVES = ("Connection._recv", "/x/lib/python3.11/multiprocessing/connection.py")


def piped(held: ProcessReport, *, asker: str = "collect", awaits: tuple[int, ...] = (52,)) -> JobFinding:
    """A program that asks three processes over pipes, of which one is held up, as seen with Python 3.11."""
    asks = msgspec.structs.replace(unnamed(50, RECEIVES, (asker, "/job/a.py"), call="read"), awaits=[*awaits])
    ready = [unnamed(pid, RECEIVES, ("env_worker", "/job/a.py"), call="read") for pid in (51, 53)]
    return judged(asks, held, *(msgspec.structs.replace(view, awaits=[50]) for view in ready))


@pytest.mark.parametrize("call", ["sleep", "futex", "recv"])
def test_of_processes_asked_over_pipes_the_one_whose_answer_is_waited_for_is_odd(call: str) -> None:
    finding = piped(unnamed(52, ("tool", "/job/b.py"), ("env_worker", "/job/a.py"), call=call))
    assert [odd_rank.pid for odd_rank in finding.odd_ranks] == [52]


def test_of_processes_asked_over_pipes_one_that_may_go_on_is_not_accused() -> None:
    """It is one of several that can answer, waits at the asker's own work, or one of its threads or children runs."""
    held = unnamed(52, ("tool", "/job/b.py"), ("env_worker", "/job/a.py"))
    first, *others = held.looks
    assert first is not None
    runs = [first, *(msgspec.structs.replace(look, all_ran=first.all_ran + 1.0) for look in others if look)]
    innocent = [
        piped(held, awaits=(52, 53)),
        piped(held, awaits=()),
        piped(held, asker="env_worker"),
        piped(msgspec.structs.replace(held, looks=runs)),
        piped(msgspec.structs.replace(held, children_ran=[0.0, 1.0])),
    ]
    assert [finding.odd_ranks for finding in innocent] == [()] * 5


def test_a_program_that_gives_its_workers_nothing_to_do_is_not_accused() -> None:
    """Its user thinks, and the workers wait for its next message."""
    ready = [unnamed(pid, RECEIVES, ("env_worker", "/job/a.py"), call="read") for pid in (51, 52, 53)]
    pauses = unnamed(50, ("main", "/job/a.py"))
    assert judged(pauses, *(msgspec.structs.replace(view, awaits=[50]) for view in ready)).odd_ranks == ()


FAR = "10.0.0.5:41000>10.0.0.9:443"


@pytest.mark.parametrize(
    ("call", "far_end", "job", "links", "result"),
    [
        ("recv", (FAR, 30.0), {}, [], "undecided"),
        ("recv", (FAR, -1.0), {}, [], "undecided"),
        ("recv", (FAR, 601.0), {}, [], "odd"),
        ("recv", None, {}, [], "odd"),
        ("recv", (FAR, 30.0), {"MASTER_PORT": "443"}, [], "neither"),
        ("recv", (FAR, 30.0), {}, ["10.0.0.9:443>10.0.0.5:41000"], "odd"),
        ("sleep", (FAR, 30.0), {}, [], "odd"),
    ],
    ids=[
        "asked now",
        "since when is not known",
        "for long",
        "on this host",
        "the store",
        "a rank of the job",
        "sleeps",
    ],
)
@pytest.mark.parametrize("stacks", [True, False])
def test_a_server_on_another_host_may_work_for_the_rank_that_waits_for_it(
    call: str, far_end: object, job: dict[str, str], links: list[str], result: str, stacks: bool
) -> None:
    """Not for longer than the limit of a process group, and not where that end is the job's own."""
    score = rank(
        1, looks(call, file="socket"), [("score", "/job/reward.py", 9)] * stacks or None, far_end=far_end, job=job
    )
    job_ranks = [rank(number, None, WAITS if stacks else None, job=job, links=links) for number in (0, 2, 3)]
    finding = judged(score, *job_ranks)
    assert odd_rank_numbers(finding) == [1] * (result == "odd")
    assert ("10.0.0.9:443, on another host" in finding.text) == (result == "undecided")
    assert ("1 (pid 101 on node1) waits in a call of the job's store" in finding.text) == (result == "neither")


def test_ranks_that_spin_in_several_libraries_of_mpi_wait_alike() -> None:
    """Seen with Open MPI 4.1: samples of one rank were in mca_btl_vader.so, of the other in libopen-pal.so."""
    libraries = {0: "mca_btl_vader.so", 1: "libopen-pal.so.40.30.2", 3: "libopen-pal.so.40.30.2"}
    asks = msgspec.structs.replace(spinning(2, []), looks=looks("recv", file="socket"))
    finding = judged(asks, *(spinning(number, [(name, 900)]) for number, name in libraries.items()))
    assert odd_rank_numbers(finding) == [2]


@pytest.mark.parametrize(
    ("functions", "shared", "odd"),
    [
        (("MPI_Sendrecv", "MPI_Recv", "MPI_Sendrecv"), [7, 7, 7], [1]),
        (("MPI_Sendrecv", "MPI_Recv", "MPI_Sendrecv"), [7, 8, 9], []),  # messages pass
        (("", "MPI_Recv", "MPI_Sendrecv"), [7, 7, 7], []),
        (("MPI_Recv", "MPI_Recv", "MPI_Recv"), [7, 7, 7], []),
    ],
)
def test_of_ranks_that_spin_in_mpi_the_one_in_another_call_is_odd(
    functions: tuple[str, ...], shared: list[int], odd: list[int]
) -> None:
    """Open MPI 4.1: a receive whose tag nobody sends. One call of each rank must be known, and no message pass."""
    ranks = [
        msgspec.structs.replace(spinning(number, [(file, 900)]), native=["libmpi.so.40", name], shared=shared)
        for number, (name, file) in enumerate(zip(functions, ("libmpi.so.40", *["mca_btl_vader.so"] * 2), strict=True))
    ]
    [finding] = find_odd({"node1": msgspec.structs.replace(host(*ranks), seconds=30.0)}, partly=True)
    assert odd_rank_numbers(finding) == odd
    assert not odd or "waits in MPI_Recv, on its CPU; ranks 0,2 wait" in finding.text


@pytest.mark.parametrize("free", [1, 2])
def test_a_worker_of_ray_that_was_given_no_task_is_odd_where_it_alone_can_be_missing(free: int) -> None:
    """Seen with ray 2.60: the driver gave a step of the training to one of two actors."""
    trains = unnamed(51, REDUCES[0], ("step", "/job/trainer.py"), MAIN_LOOP, call="futex")
    idle = [unnamed(52 + number, MAIN_LOOP, call="futex") for number in range(free)]
    finding = judged(unnamed(50, *GETS, call="futex"), trains, *idle)
    assert [odd_rank.pid for odd_rank in finding.odd_ranks] == [52] * (free == 1)
    assert "waits for its next task of Ray" in finding.text and "51" in finding.text


@pytest.mark.parametrize(
    ("switches", "helped", "result"),
    [(8, 4.0, "works meanwhile"), (8, 0.1, "may come yet"), (0, 4.0, "odd")],
    ids=["asks", "alone", "sleeps"],
)
def test_who_looks_again_and_again_for_what_another_process_computes_is_not_accused(
    switches: int, helped: float, result: str
) -> None:
    asks = rank(1, looks("sleep", switches=switches), [("poll", "/job/train.py", 9)], children_ran=[0.0, helped])
    finding = judged(asks, waits(0), waits(2), waits(3))
    assert finding.result == result or result in finding.text


DRIVER = [("libcuda.so.580.159.04", 880), ("[vdso]", 90), ("libc.so.6", 10)]
"""Of a main thread in cudaStreamSynchronize: torch 2.11, CUDA 13, an H100."""
NETWORK = [("libnccl.so.2", 600), ("libc.so.6", 300)]
"""Of the thread of NCCL that moves the bytes of a collective between hosts."""
SYNCHRONIZES = [("<module>", "/job/train.py", 78)]


def at_device(
    number: int, *, collective: bool = False, samples: object = DRIVER, switches: int = 0, line: int = 78
) -> ProcessReport:
    stack = [("train_step", "/job/train.py", line)]
    return rank(
        number,
        looks("running", "R", ran=1.9, switches=switches),
        stack,
        samples=samples,
        beside=[NETWORK] if collective else [],
        devices=["/dev/nvidia0", "/dev/nvidiactl"],
    )


def test_ranks_at_their_gpus_in_a_collective_wait_for_the_one_that_rests() -> None:
    """`loss.item()` after an all_reduce, while another rank is held up before it."""
    held = rank(1, looks("sleep"), [("load_batch", "/job/train.py", 16)])
    finding = judged(held, *(at_device(number, collective=True) for number in (0, 2, 3)))
    assert (finding.result, odd_rank_numbers(finding)) == ("odd", [1])
    assert (
        finding.ranks[1].does.text
        == "waits for its device, for a collective of libnccl.so.2 (train_step at train.py:78)"
    )


def test_a_rank_at_its_gpu_without_a_collective_is_not_accused_beside_one_that_rests() -> None:
    held = rank(1, looks("sleep"), [("load_batch", "/job/train.py", 16)])
    finding = judged(held, at_device(0, collective=True), *(at_device(number) for number in (2, 3)))
    assert (finding.result, odd_rank_numbers(finding)) == ("odd", [1])


def test_where_nothing_shows_a_collective_a_rank_that_rests_is_no_culprit() -> None:
    """The others may compute for long, and it has nothing to do meanwhile."""
    held = rank(1, looks("sleep"), [("load_batch", "/job/train.py", 16)])
    finding = judged(held, *(at_device(number) for number in (0, 2, 3)))
    assert (finding.result, odd_rank_numbers(finding), finding.may_be_slow) == ("undecided", [], True)


@pytest.mark.parametrize("collective", [True, False])
def test_ranks_that_all_stand_still_at_their_gpus_are_never_healthy(collective: bool) -> None:
    """A kernel that never ends, a collective that never ends and a long step look alike."""
    finding = judged(*(at_device(number, collective=collective) for number in range(4)))
    assert (finding.result, odd_rank_numbers(finding), finding.may_be_slow) == ("undecided", [], True)


def test_without_samples_a_rank_with_a_gpu_that_stands_still_is_not_known_to_compute() -> None:
    finding = judged(*(at_device(number, samples=[]) for number in range(4)))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


def test_ranks_at_their_gpus_wait_for_the_one_whose_loader_gives_nothing() -> None:
    """torch's loader asks for its next batch every 5 s. Seen on an H200: its worker slept, and the rank was unknown."""
    held = rank(1, looks("poll", switches=1), LOADER)
    finding = judged(held, *(at_device(number, collective=True) for number in (0, 2, 3)))
    assert (finding.result, odd_rank_numbers(finding)) == ("odd", [1])


def without_stack(report: ProcessReport) -> ProcessReport:
    return msgspec.structs.replace(report, stacks=[])


@pytest.mark.parametrize("carriers", [(0,), (0, 1, 2)], ids=["one", "all but one"])
def test_a_rank_whose_threads_move_the_bytes_of_a_collective_is_not_odd_beside_those_that_share_memory(
    carriers: tuple[int, ...],
) -> None:
    """Of the ranks on a host only those at the end of a ring have a thread of NCCL for the network."""
    ranks = [without_stack(at_device(number, collective=number in carriers)) for number in range(4)]
    finding = judged(*ranks)
    assert (finding.result, odd_rank_numbers(finding), finding.may_be_slow) == ("undecided", [], True)


@pytest.mark.parametrize("others", [1, 3])
def test_without_stacks_a_rank_at_its_gpu_is_not_odd_beside_those_that_wait_for_their_threads(others: int) -> None:
    """Each of them may be in the collective, or before it. Seen on an H200: a rank that left out a collective."""
    gpu = without_stack(at_device(0))
    ranks = [gpu, *(rank(number, looks("futex")) for number in range(1, 1 + others))]
    finding = judged(*(msgspec.structs.replace(entry, world=len(ranks)) for entry in ranks))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", [])


def test_ranks_whose_steps_come_and_go_at_their_gpus_move() -> None:
    """Of 1,000 samples one in Python, between two steps; other threads may wake the main one now and then."""
    between = [*DRIVER, ("libtorch_python.so", 1)]
    finding = judged(*(at_device(number, collective=True, samples=between) for number in range(4)))
    assert finding.result == "moves"
    finding = judged(*(at_device(number, collective=True, switches=2) for number in range(4)))
    assert finding.result == "undecided"


def test_an_endless_loop_beside_ranks_at_their_gpus_is_never_healthy() -> None:
    loops = rank(1, looks("running", "R", ran=1.9), COMPUTES, samples=[("python3.12", 900)], devices=["/dev/nvidia0"])
    for collective in (True, False):
        finding = judged(loops, *(at_device(number, collective=collective) for number in (0, 2, 3)))
        assert finding.result == "undecided"


@pytest.mark.parametrize(("carried", "result"), [((7, 7, 7), "odd"), ((7, 7, 8), "undecided"), ((-1, -1, -1), "odd")])
def test_a_download_however_slow_is_work(carried: tuple[int, int, int], result: str) -> None:
    """Which server is silent, and which sends a little now and then, the bytes of its connection tell."""
    receives = [
        msgspec.structs.replace(each, awaited=count)
        for each, count in zip(looks("recv", file="socket"), carried, strict=True)
    ]
    held = rank(2, receives, [("recv", "/job/hub.py", 3), ("main", "/job/train.py", 9)])
    finding = judged(held, *(rank(number, None, WAITS) for number in (0, 1, 3)))
    assert finding.result == result
    assert "reads or writes meanwhile" in finding.text or result == "odd"


def test_processes_that_are_connected_with_nobody_are_no_healthy_job() -> None:
    """Ranks that still import, and processes that the user took for ranks."""

    def computing(number: int, **fields: object) -> ProcessReport:
        fields = {"tcp": [-1, -1, -1], "samples": [("python3.11", 900)], **fields}
        return rank(number, looks("running", "R", ran=2.0), COMPUTES, **fields)

    apart = judged(*(computing(number) for number in range(4)))
    assert (apart.result, "not connected" in apart.text) == ("undecided", True)
    [stranger] = find_odd({"node1": host(computing(0, rank=None, world=0, job={}))}, partly=True)
    assert stranger.result == "undecided"
    for evidence in ({"tcp": [0, 0, 0]}, {"devices": ["/dev/davinci0"]}, {"group": 100}, {"links": ["a:1>b:2"]}):
        assert judged(computing(0, **evidence), *(computing(number) for number in (1, 2, 3))).result == "moves"
    assert judged(computing(0, world=1)).result == "moves"


@pytest.mark.parametrize(
    ("samples", "works"),
    [
        ([("libtorch_cpu.so", 300), ("python3.11", 900)], True),
        ([("libpython3.11.so.1.0", 900), ("libc.so.6", 200), ("libtorch_cpu.so", 20)], False),
        ([("job", 900), ("libm.so.6", 200)], False),
        ([("libtorch_cpu.so", 4)], False),
    ],
)
def test_who_computes_in_libraries_works(samples: list[tuple[str, int]], works: bool) -> None:
    """An evaluation, whose stack may show the same function twice, is no endless loop."""
    busy = rank(2, looks("running", "R", ran=2.0), COMPUTES, samples=samples)
    finding = judged(busy, *(rank(number, None, WAITS, off_cpu=900.0) for number in (0, 1, 3)))
    assert finding.result == ("undecided" if works else "odd")


@pytest.mark.parametrize(
    ("values", "devices", "waited", "named"),
    [
        (3, [], 20.0, [2]),  # it looks at the same again and again
        (90, [], 20.0, []),
        (0, [], 20.0, []),
        (3, ["/dev/davinci0"], 20.0, []),
        (90, [], 900.0, [2]),
    ],
)
def test_who_computes_in_one_function_may_come_to_its_end(
    values: int, devices: list[str], waited: float, named: list[int]
) -> None:
    """As in a tokenizer: longer than process groups permit it holds up the others, and a loop that finds nothing new
    does at once.
    """
    computes = rank(2, looks("running", "R", ran=2.0), COMPUTES, register_values=values, devices=devices)
    others = [rank(number, None, WAITS, off_cpu=waited) for number in (0, 1, 3)]
    assert odd_rank_numbers(judged(computes, *others)) == named
    sleeper = judged(computes, rank(0, looks("sleep"), COMPUTES), *others[1:])
    assert odd_rank_numbers(sleeper) == ([2, 0] if values == 3 and not devices else [0])


@pytest.mark.parametrize(
    ("helped", "beside", "named"), [(0.0, {}, [2]), (4.0, {}, []), (0.0, {"register_values": 90}, [])]
)
def test_who_looks_at_the_same_again_and_again_is_odd_unless_one_works_for_it(
    helped: float, beside: dict[str, object], named: list[int]
) -> None:
    """A flag that nothing sets; a process below it, or another rank, may compute what is to be there."""
    loop = rank(2, looks("running", "R", ran=2.0), COMPUTES, register_values=3, children_ran=[0.0, helped])
    other = rank(1, looks("running", "R", ran=2.0), COMPUTES, **beside) if beside else waits(1)
    finding = judged(loop, other, waits(0), waits(3))
    assert odd_rank_numbers(finding) == named and "looks at the same again and again, on its CPU" in finding.text
    assert named or finding.result == "undecided"


def test_a_rank_that_computes_for_certain_makes_the_others_no_healthy_ones() -> None:
    """One loops, the others wait on their CPUs, and a busy host gives them too little time for samples."""
    loops = rank(2, looks("running", "R", ran=0.2), samples=[("job", 81)])
    waiting = [rank(number, looks("running", "R", ran=0.02), samples=[("libmpi.so.40", 2)]) for number in (0, 1, 3)]
    assert judged(loops, *waiting).result == "undecided"


SERVES_EVENTS = [("_run_once", "/usr/lib/python3.11/asyncio/base_events.py", 3), ("main", "/job/train.py", 7)]


@pytest.mark.parametrize(
    ("idle", "collective", "result"), [(1, 3, "odd"), (2, 2, "undecided"), (1, 0, "undecided")],
    ids=["one alone", "two, as a group that has no work", "nobody waits for it"],
)  # fmt: skip
def test_one_that_waits_for_an_event_while_all_that_do_its_work_are_in_a_collective(
    idle: int, collective: int, result: str
) -> None:
    """As a rank whose tasks of asyncio wait for each other, in a job that names no rank."""
    fields: dict[str, object] = {"rank": None, "world": 0, "job": {}, "group": 100}
    stacks = [SERVES_EVENTS] * idle + [WAITS] * collective
    finding = judged(*(rank(number, None, stack, **fields) for number, stack in enumerate(stacks)))
    assert finding.result == result
    assert [odd.pid for odd in finding.odd_ranks] == ([100] if result == "odd" else [])


@pytest.mark.parametrize("number", [None, 0], ids=["no rank is named", "by a launcher"])
def test_a_server_that_nobody_asks_is_not_accused_though_the_others_wait_for_its_broadcast(number: int | None) -> None:
    fields: dict[str, object] = {} if number == 0 else {"rank": None, "world": 0, "job": {}, "group": 100}
    serves = rank(0, looks("poll"), SERVES_EVENTS, awaits_request=True, **fields)
    finding = judged(serves, *(rank(number, None, WAITS, **fields) for number in (1, 2, 3)))
    assert (finding.result, finding.odd_ranks) == ("undecided", ())
    assert "It waits for a request, which may come yet" in finding.text


@pytest.mark.parametrize(
    ("file", "text"),
    [("pool.py", "waits for the results of its pool of processes"), ("queues.py", "waits for an object in a queue of")],
)
def test_a_wait_for_processes_is_called_so(file: str, text: str) -> None:
    stack = [("wait", "/usr/lib/python3.11/threading.py", 3), ("get", f"/usr/lib/python3.11/multiprocessing/{file}", 9)]
    finding = judged(rank(0, None, [*stack, WAITS[1]]), *(rank(number, None, WAITS) for number in (1, 2, 3)))
    assert odd_rank_numbers(finding) == [0] and text in finding.text


@pytest.mark.parametrize(
    ("call", "child", "text"),
    [
        ("wait", (7, "T", "sleep", ""), "waits for a child process: pid 7 is stopped"),
        ("wait", (7, "S", "write", "pipe"), "waits for a child process: pid 7 is in write of pipe"),
        ("wait", (7, "S", "read", "pipe"), "waits for a child process (main"),
        ("sleep", (7, "S", "open", "/data/a.fifo"), "sleeps; pid 7 below it is in open of /data/a.fifo (main"),
        ("sleep", (7, "S", "recv", "socket"), "sleeps (main"),
    ],
)
def test_what_a_child_does_that_is_waited_for(call: str, child: tuple[int, str, str, str], text: str) -> None:
    waits = rank(0, looks(call), COMPUTES[1:], children=[child])
    assert text in judged(waits, *(rank(number, None, WAITS) for number in (1, 2, 3))).text


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("send /x/site-packages/zmq/sugar/socket.py", "waits until another process takes its messages"),
        ("recv /x/site-packages/zmq/sugar/socket.py", "waits for a message"),
        ("acquire /x/site-packages/filelock/_api.py", "tries again and again to lock a file"),
    ],
)
def test_what_a_call_of_a_library_waits_for(place: str, text: str) -> None:
    function, path = place.split()
    call = "sleep" if "filelock" in path else "poll"
    finding = judged(unnamed(51, (function, path), ("serve", "/job/serve.py"), call=call))
    assert finding.ranks[0].does.text == f"{text} (serve at serve.py:7)"


@pytest.mark.parametrize(
    ("switches", "carried", "result"), [(3, 60, "undecided"), (0, 60, "odd"), (3, 0, "odd")],
    ids=["makes long steps", "never ran", "no message"],
)  # fmt: skip
def test_a_job_of_long_steps_is_not_one_that_hangs(switches: int, carried: int, result: str) -> None:
    """As on an overloaded host, where each look finds the ranks in the same calls."""
    fields: dict[str, object] = {"tcp": [5000, 5000 + carried, 5000 + 2 * carried]}
    waits = [rank(number, looks(switches=2), WAITS, **fields) for number in (1, 2, 3)]
    finding = judged(rank(0, looks(switches=switches), COMPUTES[1:], **fields), *waits)
    assert finding.result == result
    turns = looks("running", "R", ran=2.0, switches=switches)
    assert judged(rank(0, turns, COMPUTES, **fields, register_values=1), *waits).result == result


@pytest.mark.parametrize(("state", "text"), [("T", "scontrol resume JOB"), ("S", "All ranks wait")])
def test_a_job_that_is_suspended_as_a_whole_has_no_odd_rank(state: str, text: str) -> None:
    every = [rank(number, looks(state=state), WAITS) for number in range(4)]
    finding = judged(*every)
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", []) and text in finding.text
    assert odd_rank_numbers(judged(rank(0, looks(state="T"), WAITS), *(rank(n, None, WAITS) for n in (1, 2, 3)))) == [0]


@pytest.mark.parametrize(("switches", "result"), [(0, "odd"), (3, "undecided")])
def test_who_reads_a_pipe_into_which_something_comes_goes_on(switches: int, result: str) -> None:
    """A decoder of shards that sends a little now and then. What was never read holds it up."""
    reads = rank(0, looks("read", file="pipe", switches=switches), COMPUTES)
    assert judged(reads, *(rank(number, None, WAITS) for number in (1, 2, 3))).result == result


@pytest.mark.parametrize(("ran", "result"), [(0.5, "undecided"), (4.0, "odd")])
def test_who_hardly_gets_a_cpu_may_have_short_work(ran: float, result: str) -> None:
    waits = [rank(number, None, WAITS, off_cpu=900.0) for number in (1, 2, 3)]
    ranks = (rank(0, looks("running", "R", ran=ran), COMPUTES), *waits)
    [finding] = find_odd({"node1": msgspec.structs.replace(host(*ranks), seconds=30.0)})
    assert finding.result == result


def test_the_process_at_the_other_end_of_a_wait_is_named() -> None:
    """Of a rank that goes on nothing is said of it."""
    waits = {"answering": [("pid 812 (redis-server)", True), ("pid 813 (redis-server)", False)]}
    still = activity(rank(1, looks("recv", file="socket"), **waits), 4.0)
    assert still.text.endswith("; at its other end is pid 812 (redis-server), which is stopped; pid 813 (redis-server)")
    assert "at its other end" not in activity(rank(1, looks("sleep"), **waits), 4.0).text


@pytest.mark.parametrize(
    ("last", "named"),
    [({}, [2]), ({"awaits": [100]}, []), ({"awaits_request": True}, []), ({"children_ran": [0.0, 9.0]}, [])],
    ids=["waits for a server that does not answer", "all wait in a circle", "is a server", "its child works"],
)
def test_of_ranks_that_wait_at_sockets_the_one_at_the_end_is_likely(last: dict[str, Any], named: list[int]) -> None:
    """Plain sockets: rank 1 waits for rank 0, rank 0 for rank 2, and that one for none of them."""
    held = looks("recv", file="socket")
    chain = [
        rank(0, held, COMPUTES, awaits=[102]),
        rank(1, held, COMPUTES, awaits=[100]),
        rank(2, held, COMPUTES, **last),
    ]
    finding = judged(*(msgspec.structs.replace(each, world=3) for each in chain))
    assert (finding.result, odd_rank_numbers(finding)) == ("undecided", named)


@pytest.mark.parametrize(
    ("ranks_at_key", "odd"), [((2,), []), ((1, 2), []), ((1, 2, 3), [0])], ids=["one", "half", "most"]
)
@pytest.mark.parametrize("served", ["by the launcher", "by rank 0"])
def test_who_waits_for_a_key_of_the_store_is_not_to_blame(
    ranks_at_key: tuple[int, ...], odd: list[int], served: str
) -> None:
    """The one that was to set it went another way; where most wait for it, that is the one that does not."""
    env: dict[str, Any] = {"job": {"MASTER_PORT": "29500"}} if served == "by the launcher" else {"job": {}}
    store: dict[str, Any] = {} if served == "by the launcher" else {"stores": [(29500, [], [])]}
    waits = {"far_end": ("127.0.0.1:50000>127.0.0.1:29500", 9.0), **env}
    ranks = [
        rank(number, looks("poll"), [("main", "/job/train.py", 9)], **waits)
        if number in ranks_at_key
        else rank(number, None, WAITS, **env, **(store if number == 0 else {}))
        for number in range(4)
    ]
    finding = judged(*ranks)
    assert (finding.result, odd_rank_numbers(finding)) == ("odd" if odd else "undecided", odd)
    assert odd or "waits in a call of the job's store, for a key that is not set (main at train.py:9)" in finding.text


def test_who_computes_before_it_sets_the_key_is_not_accused() -> None:
    at_store = {"far_end": ("127.0.0.1:50000>127.0.0.1:29500", 9.0)}
    waiting = [rank(number, looks("poll"), [("main", "/job/train.py", 9)], **at_store) for number in (1, 2, 3)]
    finding = judged(rank(0, looks("running", "R", ran=1.9), COMPUTES), *waiting)
    assert (finding.result, finding.odd_ranks) == ("undecided", ())
    stuck = judged(rank(0, looks("lock", file="/x.lock"), COMPUTES), *waiting)
    assert odd_rank_numbers(stuck) == [0]
