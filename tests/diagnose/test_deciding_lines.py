"""Errno, address and list in a line say why and where; ranks start at 0; and how each of these could be wrong."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import doctor
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.signature import load_signatures
from tests.diagnose.test_rules import CLOSED, SIGNATURES, TIMED_OUT, WATCHDOG, logs, named

TRIED = (
    "[W1120 07:17:10.3 socket.cpp:767] [c10d] The client socket has failed to connect to [{0}]:29500 (errno: {1}).\n"
)
GAVE_UP = (
    "[E1120 07:17:10.3 socket.cpp:1028] [c10d] The client socket has timed out after 12000ms while trying to connect "
    "to ({0}, 29500).\n"
)
ERRNO = {
    111: "111 - Connection refused",
    113: "113 - No route to host",
    110: "110 - Connection timed out",
    99: "99 - Cannot assign requested address",
}
LOOPBACK = (
    "Gloo connectFullMesh failed with [pair.cc:152] timed out connecting: SO_ERROR: Connection refused, "
    "remote=[127.0.0.1]:3728\n"
)
DROPPED = (
    "[E1120 07:18:13.7 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [pair.h:311] Connect timeout [none]\n"
)


def unreached(errno: int, host: str = "10.99.0.1") -> str:
    return TRIED.format(host, ERRNO[errno]) * 3 + GAVE_UP.format(host)


def verdict(diagnosis: Diagnosis) -> tuple[str, str, list[tuple[int | None, str]]]:
    (cause,) = diagnosis.causes
    return cause.signature, cause.confidence, [(culprit.rank, culprit.host) for culprit in cause.culprits]


class TestErrno:
    @pytest.mark.parametrize(
        ("errno", "signature", "ends"),
        [
            (111, "torch-master-refused", [(None, "10.99.0.1")]),
            (113, "torch-master-no-route", [(None, "10.99.0.1")]),
            (110, "torch-master-dropped", [(None, "10.99.0.1")]),
        ],
    )
    def test_says_why_the_store_was_not_reached_and_where_that_lies(
        self, errno: int, signature: str, ends: list[tuple[int | None, str]]
    ) -> None:
        diagnosis = logs(rank_1=unreached(errno), rank_2=unreached(errno))
        assert verdict(diagnosis) == (signature, "likely", ends)

    def test_that_no_port_is_left_lies_with_the_host_that_connects(self) -> None:
        """Seen with torch 2.13 in a network namespace with three to six ports; a rank with ports reaches the store."""
        texts = {f"rank_{rank}": unreached(99).replace("[", f"[rank{rank}]:[", 1) for rank in (2, 3)}
        assert verdict(logs(**texts)) == ("torch-ports-exhausted", "likely", [(2, ""), (3, "")])
        assert not logs(rank_2="[rank2]:" + TRIED.format("10.99.0.1", ERRNO[99]) + "step 1 loss 2.5\n").causes

    @pytest.mark.parametrize("address", ["localhost", "::1", "fe80::1%eth0"])
    def test_99_of_a_name_or_of_ipv6_may_be_an_address_that_this_host_lacks(self, address: str) -> None:
        assert not logs(rank_1=TRIED.format(address, ERRNO[99]) * 2 + GAVE_UP.format(address)).causes

    def test_of_one_rank_names_both_ends_of_its_link(self) -> None:
        """Its own network may be the one that fails."""
        text = unreached(113).replace("[W", "[rank1]:[W").replace("[E", "[rank1]:[E")
        ends = [(1, ""), (None, "10.99.0.1")]
        assert verdict(logs(train=text)) == ("torch-master-no-route", "possible", ends)

    @pytest.mark.parametrize("garbled", ["147.85.0.0:61119", "[636d:0:eec0:0:5593::]:61117"])
    def test_takes_the_host_from_the_store_s_line_where_torch_prints_no_address(self, garbled: str) -> None:
        """torch 2.13 prints bytes of a pointer where getnameinfo(3) fails, as on hosts without a name server."""
        tried = f"The client socket has failed to connect to {garbled} (errno: 101 - Network is unreachable).\n"
        text = (
            f"[rank1]:[W1127 23:00:04.33 socket.cpp:764] [c10d] {tried}"
            "[rank1]:[W1127 23:00:04.34 TCPStore.cpp:340] [c10d] TCP client failed to connect/validate to host n0:29500"
            " - retrying (try=0, timeout=900000ms, delay=721ms): The client socket has failed to connect to any "
            f"network address of (n0, 29500). {tried}"
        )
        gave_up = "[rank1]:" + GAVE_UP.format("n0")
        assert verdict(logs(train=text + gave_up)) == ("torch-master-no-route", "possible", [(1, ""), (None, "n0")])
        first = text.splitlines(keepends=True)[0]
        assert garbled[:6] not in str(logs(train=first + gave_up).causes[0].culprits)

    def test_of_a_connection_that_came_about_in_the_end_says_nothing(self) -> None:
        """Ranks that start before the store are refused at first."""
        for later in (TIMED_OUT, CLOSED, "training finished"):
            diagnosis = logs(
                rank_1=TRIED.format("n0", ERRNO[111]) + later, rank_2=TRIED.format("n0", ERRNO[111]) + later
            )
            assert "torch-master-refused" not in {cause.signature for cause in diagnosis.causes}

    def test_of_the_last_try_counts(self) -> None:
        text = TRIED.format("n0", ERRNO[111]) + unreached(113, "n0")
        assert verdict(logs(rank_1=text, rank_2=text))[0] == "torch-master-no-route"

    def test_that_differs_between_ranks_decides_by_most_of_them_or_not_at_all(self) -> None:
        texts = {"rank_1": unreached(111), "rank_2": unreached(113)}
        assert "torch" not in str(named(logs(**texts)))
        assert verdict(logs(**texts, rank_3=unreached(111)))[0] == "torch-master-refused"

    def test_is_outranked_by_the_fault_of_the_rank_with_the_store(self) -> None:
        diagnosis = logs(rank_0="OSError: [Errno 28] No space left on device", rank_1=unreached(111))
        assert named(diagnosis) == [("disk-full", "local fault", [0])]


class TestAddress:
    def test_loopback_for_several_hosts_is_the_resolution_of_a_name(self) -> None:
        (cause,) = logs(rank_0=LOOPBACK, rank_1=LOOPBACK).causes
        assert (cause.signature, cause.confidence, cause.culprits) == ("gloo-loopback-address", "possible", ())

    def test_loopback_on_one_host_with_a_silent_rank_is_that_rank(self) -> None:
        """It was killed before the others connected to it."""
        (cause,) = logs(rank_0=LOOPBACK, rank_1="step", rank_2=LOOPBACK).causes
        assert [culprit.rank for culprit in cause.culprits] == [1] and cause.signature == "rank-silent"

    def test_ports_that_do_not_answer_although_the_store_did_are_a_firewall(self) -> None:
        (cause,) = logs(rank_0=DROPPED, rank_1=DROPPED).causes
        assert (cause.signature, cause.culprits) == ("gloo-ports-dropped", ())

    def test_the_peer_and_the_rank_that_prints_it_are_both_named(self) -> None:
        line = "[n1][[463,1],{0}][btl_tcp_endpoint.c:803] connect() to 10.1.1.{1} failed: No route to host (113)\n"
        signature, confidence, ends = verdict(logs(train=line.format(0, 4)))
        assert (signature, confidence, ends) == ("ompi-no-route", "possible", [(None, ""), (None, "10.1.1.4")])

    def test_nccl_that_gave_up_after_its_last_retry_has_a_link_that_failed(self) -> None:
        line = (
            "n1:1:2 [0] NCCL INFO socketPollConnect: connect returned No route to host, retrying ({0}/34) after sleep\n"
        )
        assert not logs(train=line.format(33)).failed
        assert [cause.signature for cause in logs(train=line.format(33) + line.format(34)).causes] == ["nccl-no-route"]

    def test_a_host_that_was_not_reached_without_a_reason_is_named_in_what_is_not_decided(self) -> None:
        undecidable = logs(rank_0=GAVE_UP.format("n7"), rank_1=GAVE_UP.format("n7")).undecidable
        assert undecidable and "host n7 was not reached" in undecidable.reason
        key = "torch.distributed.DistStoreError: wait timeout after 25000ms, keys: /default_pg/0//cpu//0/1\n"
        awaited = logs(rank_0=key, rank_2=key)
        assert [culprit.rank for cause in awaited.causes for culprit in cause.culprits] == [1]
        lost = logs(train=f"[rank0]: {CLOSED}\n[rank1]: {CLOSED}").undecidable  # it was reached, and ended
        assert lost and "reached" not in lost.reason


REGISTER_ERROR = (
    "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: failed to connect to all addresses; last error: UNAVAILABLE: {0}\n"
    "RPC: /tensorflow.CoordinationService/RegisterTask\n"
)
NO_COORDINATOR = "ipv4:10.1.1.4:13305: Failed to connect to remote host: Connection refused"


class TestCoordinatorOfJax:
    def test_that_refuses_is_named_and_no_firewall_is_looked_for(self) -> None:
        for text in (
            REGISTER_ERROR.format(NO_COORDINATOR),
            REGISTER_ERROR.format("x") + f"W0000 1 subchannel.cc:1] {NO_COORDINATOR}\n",
        ):
            diagnosis = logs(worker=text)
            assert verdict(diagnosis) == ("grpc-server-refused", "likely", [(None, "10.1.1.4")])

    def test_that_was_refused_long_before_or_not_at_all_is_not_decided_so(self) -> None:
        """Another server may have refused, or process 0 had not started yet."""
        for text in (REGISTER_ERROR.format("x"), NO_COORDINATOR + "\n" * 30 + REGISTER_ERROR.format("x")):
            assert verdict(logs(worker=text)) == ("jax-leader-unreached", "likely", [])


class TestVariablesOfTorch:
    LINE = (
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set"
    )

    def test_that_no_launcher_has_set(self) -> None:
        (cause,) = logs(worker="Traceback (most recent call last):\n" + self.LINE).causes
        assert cause.signature == "torch-variables-missing"

    def test_that_a_program_can_do_without(self) -> None:
        line = self.LINE.removeprefix("ValueError: ")
        text = f"Failed to initialize process group: {line}, falling back to single GPU\nstep 1 loss: 3.2\n"
        assert not logs(worker=text + "training finished").causes


NODES = "[ERROR] ME(1,MainProcess):2025-03-10-09:40:38.722.000 [_api.py:431] Time out nodes are {0}\n"


class TestListOfNodes:
    def test_names_the_workers_that_mindspore_no_longer_heard(self) -> None:
        assert verdict(logs(msrun=NODES.format("['3']"))) == ("ms-node-timed-out", "likely", [(3, "")])

    def test_of_most_workers_is_the_scheduler_or_its_network_and_names_nobody(self) -> None:
        assert not logs(msrun=NODES.format("['0', '1', '2', '3']")).causes

    def test_is_outranked_by_the_workers_own_fault(self) -> None:
        diagnosis = logs(
            msrun=NODES.format("['3']"), worker_1="OSError: [Errno 28] No space left on device", worker_3="x"
        )
        assert named(diagnosis) == [("disk-full", "local fault", [1])]


class TestRanksStartAt0:
    def test_one_of_which_the_logs_show_nothing_may_be_the_silent_one(self) -> None:
        diagnosis = logs(**{f"rank_{rank}": TIMED_OUT for rank in (1, 2, 3)})
        assert verdict(diagnosis) == ("rank-silent", "possible", [(0, "")])
        merged = logs(train="\n".join(WATCHDOG.format(rank, 7, "ALLREDUCE", 8) for rank in (0, 1, 3)))
        assert verdict(merged) == ("rank-silent", "possible", [(2, "")])

    @pytest.mark.parametrize("ranks", [(1,), (1, 5), (3, 7), (4, 5, 6, 7)])
    def test_logs_of_some_ranks_alone_accuse_none_of_the_others(self, ranks: tuple[int, ...]) -> None:
        assert not logs(train="\n".join(f"[rank{rank}]: {TIMED_OUT}" for rank in ranks)).causes


class TestWhatIsAskedFor:
    def test_is_no_log_that_was_given(self) -> None:
        undecidable = logs(rank_0=GAVE_UP.format("n7"), rank_1=GAVE_UP.format("n7")).undecidable
        assert undecidable and not [text for text in undecidable.needed if "logs" in text]

    def test_is_the_log_that_lies_between_others(self) -> None:
        undecidable = logs(**{f"rank_{rank}": TIMED_OUT for rank in (0, 5)}).undecidable
        assert undecidable and "the logs of ranks 1, 2, 3, 4" in undecidable.needed

    def test_is_every_other_log_where_one_was_given(self) -> None:
        undecidable = logs(train=TIMED_OUT).undecidable
        assert undecidable and "the logs of all other ranks" in undecidable.needed


UNKNOWN = [
    "OSError: [Errno 116] Stale file handle: '/data/x.bin'",
    "ImportError: libtorch.so: cannot open shared object file: Stale file handle",
    "OSError: [Errno 5] Input/output error: '/nfs/x'",
    "Traceback (most recent call last):\n  File 't.py', line 3\nMyError: something odd",
    "ImportError: libfoo.so.3: cannot open shared object file: No such file or directory",
]


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_exception_advises_nothing_that_its_line_has_no_evidence_for(text: str) -> None:
    (cause,) = logs(train=text).causes
    signature = SIGNATURES[cause.signature]
    advised = " ".join((*signature.fix, *signature.checks, *signature.playbooks)).lower()
    assert "driver" not in advised and "npu" not in advised


def test_a_stale_file_handle_is_told_from_a_fault_of_the_program() -> None:
    assert [cause.signature for text in UNKNOWN[:2] for cause in logs(train=text).causes] == ["file-handle-stale"] * 2


@cache
def texts_of_the_code() -> frozenset[str]:
    paths = Path(doctor.__file__).parent.joinpath("diagnose").rglob("*.py")
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return frozenset(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("signature", SIGNATURES.values(), ids=lambda signature: signature.id)
def test_each_named_group_of_a_pattern_is_read_by_a_rule(signature) -> None:
    """A value that is captured and that nobody evaluates is evidence that is thrown away."""
    groups = {name for pattern in signature.patterns for name in re.compile(pattern).groupindex}
    assert groups <= texts_of_the_code()


def test_a_variant_decides_what_it_explains_and_accuses_nobody_by_its_role() -> None:
    for signature in load_signatures().values():
        if signature.decides:
            assert signature.role == "evidence" and signature.explains and signature.fix and signature.causes


REFUSED = "[rank{0}] WatchTasks: ipv4:10.9.0.1:13305: Failed to connect to remote host: Connection refused\n"
REGISTER = (
    "jaxlib._jax.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\n"
    "RPC: /tensorflow.CoordinationService/RegisterTask\n"
)


class TestServersOfGrpc:
    def test_where_nothing_listens_is_named(self) -> None:
        diagnosis = logs(a=REFUSED.format(1), b=REFUSED.format(2))
        assert verdict(diagnosis) == ("grpc-server-refused", "likely", [(None, "10.9.0.1")])

    def test_a_fault_of_the_process_that_serves_there_outranks_it(self) -> None:
        diagnosis = logs(rank_0="OSError: [Errno 28] No space left on device", rank_1=REFUSED.format(1))
        assert named(diagnosis) == [("disk-full", "local fault", [0])]

    def test_who_did_not_reach_process_0_at_the_start_accuses_nobody(self) -> None:
        """A firewall, a wrong address and a process that was not started look alike from there."""
        assert verdict(logs(rank_1=REGISTER)) == ("jax-leader-unreached", "likely", [])
        assert verdict(logs(rank_1=REGISTER, rank_2=REGISTER)) == ("jax-leader-unreached", "likely", [])


def test_hosts_whose_names_are_not_resolved_gave_the_others_a_loopback_address() -> None:
    """Ray's driver shows the address of each worker; on a single host the fallback of gloo is right."""
    fallback = "Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback."
    failed = "Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
    heads = (
        "(WorkerDict pid=930, ip=10.4.0.{0}) [rank{0}]:[W528 08:52:46.16 ProcessGroupGloo.cpp:727] {1}\n",
        "(WorkerDict pid=930, ip=10.4.0.{0}) [rank{0}]:[E528 08:52:46.16 ProcessGroupGloo.cpp:145] {1}\n",
    )
    lines = [head.format(rank, text) for head, text in zip(heads, (fallback, failed), strict=True) for rank in (1, 2)]
    (cause,) = logs(driver="".join(lines)).causes
    assert (cause.signature, cause.confidence) == ("gloo-loopback-address", "likely")
    assert not logs(run="".join(lines[:2]) + "step 1 loss 2.0\nTraining completed\n").causes
