"""What each process chose at its start, compared over all: the odd one is named though nothing failed."""

from __future__ import annotations

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from tests.diagnose.test_rules import CLOSED, TIMED_OUT, logs

END = "step 100 loss 2.1\nTraining completed\n"
HEAD = "n{rank}:{pid}:9 [0] NCCL INFO "
INIT = (
    f"{HEAD}Bootstrap : Using {{interface}}:10.0.0.{{rank}}<0>\n{HEAD}{{extra}}\n{HEAD}Using network {{network}}\n"
    "n{rank}:{pid}:9 [0] NCCL INFO comm 0x5581 rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 1 - Init COMPLETE\n" + END
)


def job(changes: dict[int, dict[str, str]], ranks: int = 4) -> Diagnosis:
    """A healthy job, in which these ranks printed something else."""
    usual = {"interface": "eth0", "network": "IB", "extra": "NET/Plugin: Could not find: libnccl-net.so"}
    texts = {f"rank_{n}": INIT.format(rank=n, pid=100 + n, **{**usual, **changes.get(n, {})}) for n in range(ranks)}
    return logs(**texts)


def named(diagnosis: Diagnosis) -> list[tuple[str, str, list[int | None]]]:
    return [(c.signature, c.confidence, [culprit.rank for culprit in c.culprits]) for c in diagnosis.causes]


@pytest.mark.parametrize(
    ("change", "confidence", "phrase"),
    [
        ({"network": "Socket"}, "likely", "network Socket, where the others have IB"),
        ({"network": "AWS Libfabric"}, "likely", "network AWS Libfabric"),
        ({"interface": "docker0"}, "possible", "interface docker0, where the others have eth0"),
    ],
)
def test_the_rank_that_chose_otherwise_is_named(change: dict[str, str], confidence: str, phrase: str) -> None:
    diagnosis = job({2: change})
    assert named(diagnosis) == [("communication-choice-differs", confidence, [2])]
    assert phrase in diagnosis.causes[0].summary


@pytest.mark.parametrize(
    "extra",
    [
        "NET/IB : GPU Direct RDMA {0} for HCA 0 'mlx5_0'",
        "NET/IB : Using [0]mlx5_{0}:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "{0} coll channels, 0 nvls channels, 8 p2p channels, 8 p2p channels per peer",
        "TUNER/Plugin: Using tuner plugin {0}",
        "NET/Plugin: Loaded net plugin {0} (v8)",
        "NCCL_ALGO set by environment to {0}",
    ],
)
def test_each_choice_is_compared(extra: str) -> None:
    usual, differing = (
        ("Enabled", "Disabled") if "GPU Direct" in extra else ("4", "12") if "channels" in extra else ("0", "1")
    )
    changes = {rank: {"extra": extra.format(differing if rank == 1 else usual)} for rank in range(4)}
    assert [ranks for _, _, ranks in named(job(changes))] == [[1]]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {0: {"network": "Socket"}, 1: {"network": "Socket"}},
        {2: {"network": "Socket", "extra": "NCCL_IB_DISABLE set by environment to 1."}},
        {n: {"interface": f"eth{n}"} for n in range(4)},
        {n: {"network": "Socket"} for n in range(4)},
    ],
    ids=["all alike", "half and half", "switched off", "all different", "sockets of all"],
)
def test_nobody_is_named_where_most_do_not_agree_or_it_was_meant(changes: dict[int, dict[str, str]]) -> None:
    assert named(job(changes)) == []


def test_two_processes_outvote_each_other() -> None:
    assert named(job({1: {"network": "Socket"}}, ranks=2)) == []


def test_sockets_where_an_adapter_could_not_be_opened_are_a_finding() -> None:
    closed = {"network": "Socket", "extra": "NET/IB : Unable to open device mlx5_0"}
    assert named(job(dict.fromkeys(range(4), closed))) == [("nccl-network-fallback", "likely", [0, 1, 2, 3])]
    without = {"network": "Socket", "extra": "Failed to open libibverbs.so[.1]"}
    assert named(job(dict.fromkeys(range(4), without))) == []


def test_a_failure_outranks_a_choice() -> None:
    texts = {f"rank_{n}": INIT.format(rank=n, pid=n, interface="eth0", network="IB", extra="-") for n in (0, 1)}
    socket = INIT.format(rank=2, pid=2, interface="eth0", network="Socket", extra="-").replace(END, CLOSED)
    failed = "[rank3]: RuntimeError: CUDA error: device-side assert triggered\n"
    assert [name for name, _, _ in named(logs(rank_2=socket, rank_3=failed, **texts))] == ["cuda-assert"]


def test_of_ranks_that_only_waited_the_odd_one_is_possible() -> None:
    """With another network than the others it cannot connect to them; that alone explains why all waited."""
    texts = {
        f"rank_{n}": INIT.format(
            rank=n, pid=n, interface="eth0", network="Socket" if n == 2 else "IB", extra="-"
        ).replace(END, TIMED_OUT)
        for n in range(4)
    }
    assert named(logs(**texts)) == [("communication-choice-differs", "possible", [2])]
    alike = {name: text.replace("Socket", "IB") for name, text in texts.items()}
    assert logs(**alike).causes == ()


def test_a_rank_without_the_plugin_of_the_others_is_named() -> None:
    loaded = {n: {"extra": "NET/Plugin: Loaded net plugin Libfabric (v10)"} for n in (0, 1, 3)}
    diagnosis = job(loaded)
    assert named(diagnosis) == [("communication-choice-differs", "likely", [2])]
    assert "plugin none, where the others have Libfabric" in diagnosis.causes[0].summary


def test_an_adapter_that_a_warning_says_is_not_opened_is_no_failure() -> None:
    warned = "n0:1:9 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed\n"
    warned += "n0:1:9 [0] NCCL WARN NET/IB : Unable to open device mlx5_0\nn0:1:9 [0] NCCL INFO Using network Socket\n"
    assert named(logs(rank_0=warned, rank_1=warned.replace("n0:1", "n1:2")))[0][:2] == (
        "nccl-network-fallback",
        "likely",
    )
