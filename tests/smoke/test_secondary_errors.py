"""Errors that follow from another rank accuse that one, where two hosts name it, and never who reports them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from doctor.smoke.model import Failure
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.programs.secondary_errors import gave_up_waiting, headline, is_secondary, peer_addresses
from doctor.smoke.run.supervisor import smoke
from tests.smoke.ranks import Ranks
from tests.smoke.scripted import Agent, Line, Stage, alive, event, hello

# pytorch/torch/csrc/distributed/c10d/TCPStore.cpp, ProcessGroupNCCL.cpp; Ascend/pytorch ProcessGroupHCCL.cpp; CANN's
# error codes; gloo/transport/tcp/pair.cc and address.cc.
NCCL = """NCCL error in: ProcessGroupNCCL.cpp:1275, {0}, NCCL version 2.14.3
{1}
Last error:
{2}"""
STORE = "[3] is setting up NCCL communicator and retrieving ncclUniqueId from [0], but store->get('0') got error: "
GIVES_UP = [
    "wait timeout after 60000ms, keys: /doctor/0//cpu//0/4",
    "Socket Timeout",
    "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation",
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 60 s",
    "WorkHCCL(SeqNum=3, OpType=ALLREDUCE, Timeout(ms)=60000) ran for 60231 milliseconds before timing out.",
    "EI0002: [PID: 2969] 2025-10-11-15:09:34.713.335 The wait execution of the Notify register times out.",
    # Ascend/pytorch issue 54; gloo's synchronous pairs and its monitored barrier; torch's socket.cpp
    "EI9999: 2024-07-03-11:28:40.419.527  The error is 1, hccl fftsplus task timeout occurred during task execution",
    "[../gloo/transport/tcp/pair.cc:312] Read timeout [10.77.1.2]:38212",
    "Rank 2 timed out in monitoredBarrier after 30000 ms.",
    "[Rank 0]: Ranks 3 failed to pass monitoredBarrier in 60000 ms",
    "The client socket has timed out after 60000ms while trying to connect to (10.77.1.2, 29500).",
    "EI0006: [PID: 1292363] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank did not send",
]
BROKEN = [
    "NCCL communicator was aborted on rank 1.",
    "[../gloo/transport/tcp/pair.cc:534] Read error [10.77.1.2]:44749: Connection reset by peer",
    "Connection closed by peer [10.77.1.2]:38212",
    "Gloo connectFullMesh failed with timed out connecting: SO_ERROR: Connection timed out, remote=[10.77.1.2]:4242",
    "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0.",
    f"{STORE}Failed to recv, got 0 bytes. Connection was likely closed.",
    # NVIDIA/nccl issues 1514 and 2076: the code does not say so, the last error does
    NCCL.format("internal error", "ncclInternalError", "Net : Connection closed by remote peer node2<50260>"),
    NCCL.format(
        "system error", "x", "socketProgress: Call to recv from 10.77.1.2<337> failed : Connection reset by peer"
    ),
]
BROKEN_AND_NAMED = [
    *BROKEN,
    "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Read error [10.77.1.2]:44749: Connection reset by peer",
    "DistBackendError: NCCL communicator was aborted on rank 1.",
    "DistNetworkError: Broken pipe",
    "XlaRuntimeError: UNAVAILABLE: Connection reset by peer",
]
OWN = [
    NCCL.format("unhandled cuda error", "ncclUnhandledCudaError", "Cuda failure 2 'out of memory'"),
    "EI0004: [PID: 7] The ranktable is invalid, Reason:[The device ID is out of range]",
    "HTTPSConnectionPool(host='s3', port=443): Read timed out.",
    "Read timeout on endpoint URL: s3",
    "ValueError: bad batch",
    # of a store or a hub (kind and message, as the hook of watch tells them): botocore, requests, Python's sockets
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "BrokenPipeError: [Errno 32] Broken pipe",
    "ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "ProtocolError: ('Connection broken: ConnectionResetError(104)', 'Connection reset by peer')",
    "EndpointConnectionError: Could not connect to the endpoint URL: https://s3/data (Connection refused)",
    "CUDA out of memory",
    "HCCL function error: HcclGetRootInfo, error code is 4",
    "",
]


@pytest.mark.parametrize("text", GIVES_UP)
def test_who_gave_up_waiting_has_no_error_of_its_own(text: str) -> None:
    assert gave_up_waiting(text) and is_secondary(text)


@pytest.mark.parametrize("text", BROKEN_AND_NAMED)
def test_who_lost_a_connection_has_no_error_of_its_own(text: str) -> None:
    assert is_secondary(text) and not gave_up_waiting(text)


@pytest.mark.parametrize("text", OWN)
def test_an_error_of_its_own_is_none_of_these(text: str) -> None:
    assert not is_secondary(text)


def test_the_peer_is_read_and_not_the_ranks_own_address() -> None:
    assert peer_addresses(BROKEN[1]) == ["10.77.1.2"] == peer_addresses(BROKEN[3])
    assert peer_addresses("timed out connecting, local=[fe80::1]:5, remote=[fe80::2]:6") == ["fe80::2"]
    assert peer_addresses("[rank1]:[W504] no address") == []
    store = "recvValue failed on SocketImpl(fd=77, addr=[::ffff:10.77.1.1]:39732, remote=[::ffff:10.77.1.2]:29600)"
    assert peer_addresses(f"{store}: Connection reset by peer") == ["10.77.1.2"]
    assert peer_addresses(BROKEN[-1]) == ["10.77.1.2"]
    assert peer_addresses(BROKEN[-2]) == ["node2"]


def test_the_line_that_says_what_became_of_the_other_rank_is_kept() -> None:
    for text in (BROKEN[-1], BROKEN[-2]):
        assert headline(text).startswith("NCCL error in: ") and is_secondary(headline(text))
        assert peer_addresses(headline(text)) == peer_addresses(text)
    hccl = f"InnerRunOpApi: OPS function error: HcclAllreduce, error code is 6\n[ERROR] ERR01100\n{GIVES_UP[-1]}\n x"
    assert headline(hccl) == f"InnerRunOpApi: OPS function error: HcclAllreduce, error code is 6; {GIVES_UP[-1]}"
    own = "HcclAllreduce, error code is 4\nEI0004: The ranktable is invalid"
    assert headline(own) == "HcclAllreduce, error code is 4; EI0004: The ranktable is invalid" and not is_secondary(own)
    assert [headline(text) for text in ("", "\n", "one", "one\ntwo")] == ["", "", "one", "one"]
    assert len(headline("x" * 10_000 + "\n" + GIVES_UP[0] + "y" * 10_000)) == 600


THREE = SmokeOptions(backend="gloo", ranks_per_host=1, budget=20.0)


def host(name: str, number: int, *names: str, error: str = "Read error [{}]:4: Connection reset by peer") -> Agent:
    """A host of one rank, which ends with an error that names the address of each other, or goes on."""

    def starts(ranks: Sequence[int]) -> list[Line]:
        (rank,) = ranks
        lines: list[Line] = [event(-1, "imported", seconds=0.1), event(rank, "joined")]
        texts = "; ".join(error.format(f"10.77.1.{ord(other) - ord('a') + 1}") for other in names)
        snap = {"rank": rank, "stamp": 9, "state": "collective", "stage": "training", "op": "all_reduce", "seq": 4}
        if names:
            lines += [event(rank, "error", kind="RuntimeError", text=texts, secondary=True, stage="training")]
            snap |= {"dead": "exit status 13", "error": texts, "secondary": True, "age": 1.0}
        calls = [[0, 4, "all_reduce", "float32", 8, -1, 1, "training"]]
        return [*lines, {"snaps": [{**snap, "calls": calls}]}, *alive(ranks)]

    addresses = {"lo": ["127.0.0.1"], "eth0": [f"10.77.1.{number}"]}
    return Agent(name, [hello(name, addresses=addresses)], starts)


def verdict(*agents: Agent) -> Failure:
    stage = Stage(**{agent.host: agent for agent in agents})
    (failure,) = smoke({agent.host: 0 for agent in agents}, stage, THREE).run.failures
    return failure


def test_whom_two_hosts_name_and_who_reported_nothing_is_the_cause() -> None:
    failure = verdict(host("a", 1, "c"), host("b", 2, "c"), host("c", 3))
    assert (failure.kind, failure.culprit_ranks) == ("network", (2,))
    assert "The errors of 2 hosts name c, whose rank 2 has none." in failure.evidence


def test_one_hosts_word_names_nobody() -> None:
    assert verdict(host("a", 1, "c"), host("b", 2, "a"), host("c", 3)).culprit_ranks == ()


def test_who_is_named_and_reports_an_error_too_may_be_a_victim() -> None:
    assert verdict(host("a", 1, "c"), host("b", 2, "c"), host("c", 3, "a")).culprit_ranks == ()


def test_two_that_each_say_that_the_other_closed_their_connection_are_the_ends_where_it_broke() -> None:
    failure = verdict(host("a", 1, "b"), host("b", 2, "c"), host("c", 3, "b"))
    assert (failure.culprit_ranks, failure.links) == ((), (("b", "c"),))
    assert "b and c each say that the other one closed their connection, before any other was lost." in failure.evidence
    ring = verdict(host("a", 1, "b"), host("b", 2, "c"), host("c", 3, "a"))
    late = "Read timeout [{}]:5"
    gave_up = verdict(host("a", 1, "b"), host("b", 2, "c", error=late), host("c", 3, "b", error=late))
    alone = verdict(host("a", 1, "b"), host("b", 2, "a"))
    several = verdict(host("a", 1, "b"), host("b", 2, "c", "a"), host("c", 3, "b"))
    assert not any(failure.links for failure in (ring, gave_up, alone, several))


@pytest.mark.torch
def test_a_reset_of_a_rank_s_own_socket_is_its_own_error() -> None:
    """As of a file server; its text is also that of a connection to a rank that has ended, which the others lose."""
    pytest.importorskip("torch", reason="torch is not installed: no rank can run")
    faults = """
        _stage_collectives = stage_collectives
        def stage_reset(ctx):
            if ctx.rank == 1:
                raise ConnectionResetError(104, "Connection reset by peer", "s3.example:443")
            _stage_collectives(ctx)
        STAGE_FUNCTIONS["collectives"] = stage_reset
    """
    ranks = Ranks(2, ["collectives"], faults)
    errors = {event["rank"]: (event["kind"], event["secondary"]) for event in ranks.of("error")}
    assert errors[1] == ("ConnectionResetError", False)
    assert errors[0][1] is True
