"""Ranks in different collectives, and gloo's ring: lines of real jobs with torch 2.13 on CPU, and what they mean."""

from __future__ import annotations

from doctor.diagnose.diagnosis import ONE_OF_TWO, Diagnosis
from tests.diagnose.test_rules import CLOSED, logs

FRAME = '  File "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py", line 3252, in {}\n'
WAITED = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 10000ms for {} operation to complete\n"
)
SIZES = (
    "  what():  [enforce fail at gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 684 vs 344. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
)
PRINT = "CollectiveFingerPrint(SequenceNumber=3, OpType={}, TensorShape=[{}], TensorDtypes=Float, TensorDeviceTypes=x)"
BARRIER = (
    "RuntimeError: Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
    "from rank 0. Please check rank 0 logs for faulty rank.\n"
)


def call(operation: str, end: str = "recv") -> str:
    """The log of a rank that timed out in this collective; ``closed``: that lost a peer in it."""
    head = "Traceback (most recent call last):\n" + FRAME.format(operation)
    return head + (CLOSED if end == "closed" else WAITED.format(end))


def fingerprint(rank: int, mine: tuple[str, int], other: int, others: tuple[str, int]) -> str:
    return (
        f"[rank{rank}]: RuntimeError: Detected mismatch between collectives on ranks. Rank {rank} is running "
        f"collective: "
        f"{PRINT.format(*mine)}, but Rank {other} is running collective: {PRINT.format(*others)}.\n"
    )


def verdict(diagnosis: Diagnosis) -> tuple[str, list[int | None], str]:
    (cause,) = diagnosis.causes
    return cause.rule, [culprit.rank for culprit in cause.culprits], cause.confidence


def test_the_rank_in_another_collective_is_known_from_the_tracebacks() -> None:
    texts = {"rank_0": call("all_reduce"), "rank_1": call("all_gather", "send"), "rank_2": call("all_reduce", "closed")}
    assert verdict(logs(**texts)) == ("minority", [1], "likely")


def test_of_two_ranks_in_different_collectives_either_may_be_wrong() -> None:
    assert verdict(logs(rank_0=call("all_reduce"), rank_1=call("barrier"))) == (ONE_OF_TWO, [0, 1], "possible")


def test_a_rank_that_left_a_broadcast_early_is_innocent() -> None:
    """The root of a broadcast may be done with it before the others have begun."""
    texts = {"rank_0": call("all_reduce"), "rank_1": call("broadcast"), "rank_2": call("broadcast")}
    assert not logs(**texts).causes


def test_a_rank_alone_in_a_broadcast_is_possible_and_who_gave_up_last_is_not_told() -> None:
    """Rank 1 ran a broadcast of its own; rank 0 waited for it in all_reduce, and lost it. A message of a broadcast that
    all others have left could be lost as well.
    """
    texts = {"rank_0": call("all_reduce", "closed"), "rank_1": call("broadcast"), "rank_2": call("all_reduce")}
    assert verdict(logs(**texts)) == ("minority", [1], "possible")
    same = {name: text.replace("broadcast", "all_reduce") for name, text in texts.items()}
    assert verdict(logs(**same)) == ("gave up last", [0], "likely")


def test_ranks_that_only_lost_a_peer_in_different_collectives_accuse_nobody() -> None:
    texts = {f"rank_{rank}": call(name, "closed") for rank, name in enumerate(("all_reduce", "barrier", "barrier"))}
    assert not logs(**texts).causes


def test_the_rank_that_both_neighbors_in_the_ring_wait_for_is_named() -> None:
    """Rank 1 receives from it, rank 3 sends to it, and it lost them when they gave up."""
    ends = ("recv", "recv", "closed", "send")
    diagnosis = logs(**{f"rank_{rank}": call("all_reduce", end) for rank, end in enumerate(ends)})
    assert verdict(diagnosis) == ("common target", [2], "possible")


def test_of_two_ranks_between_which_nothing_passes_either_may_be_struck() -> None:
    """Rank 3 sends to rank 2, which receives from it. So it was where all packets of rank 2 were dropped, and so where
    the large ones that rank 3 sent were (three hosts, `nft ip length gt 1200 drop`): it named the host that received.
    """
    ends = ("recv", "recv", "recv", "send")
    diagnosis = logs(**{f"rank_{rank}": call("all_reduce", end) for rank, end in enumerate(ends)})
    assert verdict(diagnosis) == (ONE_OF_TWO, [2, 3], "possible")


def test_two_ranks_that_wait_for_each_other_are_both_possible() -> None:
    assert verdict(logs(rank_0=call("all_reduce"), rank_1=call("all_reduce"))) == (ONE_OF_TWO, [0, 1], "possible")


def test_a_ring_in_which_each_waits_for_the_next_names_nobody() -> None:
    assert not logs(**{f"rank_{rank}": call("all_reduce") for rank in range(4)}).causes


def test_the_sender_of_a_larger_tensor_is_as_possible_as_the_rank_that_aborts() -> None:
    texts = {"rank_0": call("all_reduce", "closed"), "rank_1": SIZES, "rank_2": call("all_reduce", "closed")}
    assert verdict(logs(**texts)) == (ONE_OF_TWO, [1, 2], "possible")
    unknown = logs(**{**texts, "rank_0": CLOSED, "rank_2": CLOSED})
    assert not unknown.causes and unknown.undecidable


def test_the_fingerprints_of_all_ranks_name_the_one_that_differs() -> None:
    usual, other = ("ALLREDUCE", 1024), ("ALLREDUCE", 512)
    rows = [fingerprint(0, usual, 1, other), fingerprint(1, other, 0, usual), fingerprint(2, usual, 1, other)]
    assert verdict(logs(train="".join(rows))) == ("minority", [1], "likely")
    assert verdict(logs(train=rows[0])) == (ONE_OF_TWO, [0, 1], "possible")


def test_the_half_of_a_fingerprint_that_torch_prints_wrongly_is_not_believed() -> None:
    text = fingerprint(0, ("BARRIER", 1), 1, ("ALLREDUCE", 1)).replace(
        "SequenceNumber=3, OpType=ALL", "SequenceNumber=0OpType=ALL"
    )
    rows = [text, fingerprint(2, ("ALLREDUCE", 1), 0, ("BARRIER", 1))]
    assert verdict(logs(train="".join(rows))) == (ONE_OF_TWO, [0, 2], "possible")


def test_ranks_that_had_come_to_the_barrier_are_not_the_missing_ones() -> None:
    missed = "[Rank 0]: Ranks {} failed to pass monitoredBarrier in 10000 ms\n"
    reached = {f"rank_{rank}": BARRIER.format(rank) for rank in (1, 2)}
    assert verdict(logs(rank_0=missed.format("1, 2"), **reached)) == ("common target", [0], "likely")
    assert verdict(logs(rank_0=missed.format("1"), **reached)) == ("common target", [1], "likely")
    assert verdict(logs(rank_0=missed.format("1, 2"), rank_1=BARRIER.format(1), rank_2="step")) == (
        "named by the library",
        [2],
        "certain",
    )


def test_a_worker_that_its_agent_did_not_end_was_ended_from_outside() -> None:
    agent = (
        "W1121 17:19:49.2 3 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 72 closing signal "
    )
    agent += "SIGTERM\n"
    row = "[{0}]:\n  time      : 2026-11-21_17:19:49\n  host      : n1\n  rank      : {0} (local_rank: {0})\n"
    row += "  exitcode  : {1} (pid: 7{0})\n"
    text = agent + "Failures:\n" + row.format(1, -15) + row.format(2, -15)
    text += "Root Cause (first observed failure):\n" + row.format(0, 1)
    diagnosis = logs(train=text + f"[rank0]: {CLOSED}\n")
    assert verdict(diagnosis) == ("named by the launcher", [1], "likely")


def test_a_traceback_behind_a_progress_bar_is_read() -> None:
    bar = "".join(f"\r step {step} of 9000" for step in range(900))
    for head in (f"{bar}\r", f"{bar} "):
        text = f"{head}[rank1]: Traceback (most recent call last):\n[rank1]:   File 'x.py'\n[rank1]: CustomError: bad\n"
        assert verdict(logs(train=text)) == ("local fault", [1], "certain")


def test_ranks_that_most_lines_name_are_those_of_the_job() -> None:
    steps = "".join(f"step {step} rank {rank} loss 1\n" for step in range(20) for rank in range(3))
    text = steps + "".join(f"[rank{rank}]: {CLOSED}\n" for rank in (0, 1))
    assert verdict(logs(train=text)) == ("silence", [2], "likely")
    lora = steps.replace("rank 0", "rank 8").replace("rank 1", "rank 16").replace("rank 2", "rank 8")
    assert not logs(train=lora + f"[rank0]: {CLOSED}\n").causes


def test_the_backward_pass_of_ddp_is_an_all_reduce() -> None:
    """Lines of torch 2.13: rank 2 slept, woke after the timeout of the others, and found its connections closed."""
    frame = '[rank{0}]:   File "/usr/lib/torch/autograd/graph.py", line 865, in _engine_run_backward\n'
    error = "[rank{0}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] {1}\n"
    waits = {0: "recv", 1: "recv", 3: "send"}
    texts = {
        f"rank_{rank}": frame.format(rank)
        + error.format(rank, f"Timed out waiting 8000ms for {direction} operation to complete")
        for rank, direction in waits.items()
    }
    closed = (
        frame.format(2)
        + "[rank2]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1\n"
    )
    diagnosis = logs(rank_2=closed, **texts)
    assert [culprit.rank for cause in diagnosis.causes for culprit in cause.culprits] == [2]
    assert {cause.confidence for cause in diagnosis.causes} <= {"likely", "possible"}


WAIT_IN_GROUP = (
    "[ERROR] 2025-10-11-15:09:34 (PID:2969, Device:0, RankID:{rank}) ERR00100 PTA call acl api failed.\n"
    "EI0002: [PID: 2969] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out. "
    "remote rank:[24]. group information: [group:[group_name_1654], user define information[Unspecified], "
    "rankSize[32], rankId[25]]\n"
)


def test_a_rank_of_a_communicator_is_none_of_the_world_where_the_waiting_rank_has_two_numbers() -> None:
    """Rank 101, which is the 25th of its communicator, waits for the 24th, and not for rank 24."""
    (cause,) = logs(train=WAIT_IN_GROUP.format(rank=101)).causes
    assert [(culprit.rank, culprit.name) for culprit in cause.culprits] == [(None, "rank 24 of that communicator")]
    (of_world,) = logs(train=WAIT_IN_GROUP.format(rank=25)).causes
    assert [culprit.rank for culprit in of_world.culprits] == [24]


ENDED = (
    "W1127 09:44:13.869000 11064 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {} closing "
    "signal SIGTERM\n"
)


def test_a_rank_that_its_launcher_ended_while_it_lived_is_not_the_one_that_others_lost() -> None:
    """Host 1 lost its launcher and rank 3; host 0's launcher then ended ranks 0 and 1; rank 1 had printed nothing."""
    first, second = f"[rank0]: {CLOSED}", f"[rank2]: {CLOSED}"
    diagnosis = logs(host_0=first + ENDED.format(16832) + ENDED.format(16833), host_1=second)
    assert not diagnosis.causes and diagnosis.undecidable
    alone = logs(host_0=first + ENDED.format(16832), host_1=second)
    assert verdict(alone) == ("silence", [1], "possible")


def test_a_launcher_that_received_sigterm_itself_ended_for_what_is_outside() -> None:
    received = (
        "W1127 10:04:35.025000 22574 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, "
        "shutting down workers\n"
    )
    diagnosis = logs(train=received + ENDED.format(24681))
    assert verdict(diagnosis) == ("named by the launcher", [], "likely")
    failed = logs(train=f"[rank1]: ValueError: bad sample 17\n{received}{ENDED.format(24681)}")
    assert verdict(failed) == ("local fault", [1], "certain")


class TestArgumentsThatHcclCompares:
    """Forms of the line: hicann/hccl@09300b70 param_link_stage.md; rank_consistentcy_checker.cc of CANN 8."""

    ERROR = (
        "[ERROR] HCCL({0},train):2025-10-25-16:11:16.831.640 [rank_consistentcy_checker.cc:429] [{0}]"
        "[InitChannelStage][ParameterConflict]CMD information {1} check fail. local[{2}], remote[{3}]\n"
    )
    EI0005 = (
        "EI0005: 2024-04-24-06:32:27.781.599 The arguments for collective communication are inconsistent between ranks:"
        "parameter count, local end {0}, remote end {1}\n"
    )

    def test_the_rank_whose_value_is_rarer_is_named(self) -> None:
        ends = {0: (16512, 8320), 1: (8320, 16512), 2: (16512, 8320)}
        diagnosis = logs(**{f"rank_{rank}": self.EI0005.format(*values) for rank, values in ends.items()})
        assert verdict(diagnosis) == ("minority", [1], "likely")
        assert diagnosis.causes[0].summary == "rank 1 has count 8320 where 2 ranks have 16512"

    def test_of_two_either_is_possible(self) -> None:
        texts = {"rank_0": self.EI0005.format(16512, 8320), "rank_1": self.EI0005.format(8320, 16512)}
        diagnosis = logs(**texts)
        assert not diagnosis.causes and diagnosis.undecidable
        assert diagnosis.undecidable.reason.endswith("is wrong: rank 0 has count 16512, rank 1 has count 8320")

    def test_one_log_shows_both_values_and_accuses_nobody(self) -> None:
        lines = (("tag", "AllGather_60000", "AllReduce_60000"), ("cmdType", 6, 2))
        diagnosis = logs(train="".join(self.ERROR.format(3743927, *line) for line in lines))
        assert not diagnosis.causes and diagnosis.undecidable
        who = "pid 3743927 has tag AllGather_60000, the rank that it compared with AllReduce_60000"
        assert diagnosis.undecidable.reason == f"{who}; nothing shows which is wrong"

    def test_the_arguments_of_send_and_receive_are_those_of_a_pair(self) -> None:
        """Rank 1 sends to rank 2, ranks 3 and 5 to rank 4: the numbers of two pairs are no majority."""
        pairs = {1: (1, 2), 3: (3, 4), 5: (3, 4)}
        diagnosis = logs(**{f"rank_{rank}": self.ERROR.format(rank, "rank", *ends) for rank, ends in pairs.items()})
        assert not diagnosis.causes and diagnosis.undecidable

    def test_counts_of_different_collectives_are_not_compared(self) -> None:
        text = (
            "EI0005: The arguments for collective communication are inconsistent between ranks: tag [{}], "
            "parameter [count], local [{}], remote [{}]\n"
        )
        ends = {0: ("A_1", 8, 4), 1: ("A_1", 8, 4), 2: ("B_2", 16, 32)}
        diagnosis = logs(**{f"rank_{rank}": text.format(*values) for rank, values in ends.items()})
        assert not diagnosis.causes and diagnosis.undecidable
