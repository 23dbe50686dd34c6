"""The causes of 118 real reports of users, and for each the proofs that `doctor` finds it before the job.

A proof is a pair of the tables beside this file, where the real program runs in the same environment, or a fault in a
real host of tests/faults, where the program needs devices that no test has.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.result import Severity
from tests.containers import test_podman
from tests.interfaces import (
    test_gloo_table,
    test_het_slurm_pairs,
    test_launch_pairs,
    test_openmpi_pairs,
    test_path_table,
)
from tests.interfaces.story_table import THREADS, Proof, proof_of_fault, proof_of_pair, public_proofs

CATALOGUE = {setup.name: setup for setup in load_checks()}
FAULTS = ("addresses", "connectivity", "containers", "devices", "firewall", "gpus", "kernel", "links", "memory", "net")
FAULTS += ("ranks", "rounds", "versions")
FAULTY = {row.check for name in FAULTS for row in importlib.import_module(f"tests.faults.{name}").ROWS}
PODMAN = {"the job dies where dev shm is small and lives where not": "shm-docker-default"}
"""Tests of tests/containers with a real job in real containers."""
GLOO = [*test_gloo_table.ROWS, *test_path_table.ROWS, *test_het_slurm_pairs.ROWS]
PAIRS = {
    **{row.name: row.check for row in GLOO},
    **{row.name: row.check for row in test_launch_pairs.GLOO_ROWS},
    **{f"torchrun {row[0]}": row[2] for row in test_launch_pairs.TORCHRUN_ROWS},
    **{f"torchrun {row[0]}": "" if row[1] else "master-address-wrong" for row in test_launch_pairs.MASTER_ROWS},
    **{f"podman {name}": check for name, check in PODMAN.items()},
    **{f"mpirun {row[0]}": row[1] for row in test_openmpi_pairs.ROWS},
}


@dataclass(frozen=True)
class Cause:
    """One cause, and what finds it."""

    name: str
    stories: int
    pairs: tuple[str, ...] = ()
    """Rows of the tables: the real program died of it, or lived."""
    faults: tuple[str, ...] = ()
    """Checks with a fault in a real host."""
    warns: tuple[str, ...] = ()
    """Those of the faults after which the job may live: a warning, and no error."""
    not_found: int = 0
    """Stories of which `doctor` finds nothing before the job."""
    why: str = ""
    """Why not."""


CAUSES = [
    Cause(
        "the network interface is chosen wrongly",
        14,
        (
            "docker0 everywhere",
            "missing on one host",
            "no such interface",
            "exclusion as in NCCL",
            "an address",
            "docker0 of three networks without a route",
            "own name loopback on two",
            "mpirun --mca btl_tcp_if_include docker0",
            "mpirun --mca btl_tcp_if_include eno7",
            "another MTU on one host",
        ),
        ("interface-setting-wrong", "interface-unreachable", "interfaces-in-one-subnet", "interface-mtu-differs"),
        ("interfaces-in-one-subnet", "interface-mtu-differs"),
    ),
    Cause("only the job's log or program tells", 13, not_found=13, why="`doctor diagnose` reads the logs afterwards"),
    Cause("limits: open files, locked memory", 9, (), ("open-files-limit-low", "locked-memory-limit-low")),
    Cause(
        "ports are taken or not reserved",
        9,
        ("MASTER_PORT is taken everywhere", "MASTER_PORT is taken on another host", "the master's port is taken"),
        ("master-port-taken", "default-port-taken", "hccl-port-taken", "hccl-ports-unreserved"),
        ("default-port-taken",),
    ),
    Cause(
        "InfiniBand and RoCE adapters",
        9,
        (),
        ("rdma-port-down", "rdma-gid-wrong", "rdma-port-slow", "rdma-devices-differ", "nccl-ib-hca-missing")
        + ("rdma-settings-differ", "rdma-errors-growing"),
        ("rdma-port-down", "rdma-port-slow", "rdma-devices-differ", "rdma-settings-differ", "rdma-errors-growing"),
    ),
    Cause("/dev/shm of a container", 8, ("podman the job dies where dev shm is small and lives where not",), ("shm-docker-default", "shm-too-small")),
    Cause(
        "the own host name: loopback, missing, repeated",
        6,
        ("own name loopback on one host", "own name loopback on two", "own name unknown on two"),
        ("host-name-is-loopback", "host-name-unresolved", "host-name-repeated", "host-name-is-localhost"),
        ("host-name-is-loopback", "host-name-unresolved", "host-name-is-localhost"),
    ),
    Cause(
        "rendezvous: loopback, of no host, other on each host",
        6,
        (
            "master is loopback",
            "master is localhost",
            "master of no host",
            "master is loopback on another host",
            "master is another host on one host",
            "the master is a host of no component",
            "torchrun --nnodes 1 --master-addr FOREIGN --master-port PORT",
        ),
        ("master-address-wrong", "host-name-ambiguous"),
        ("host-name-ambiguous",),
    ),
    Cause("fabric manager", 6, (), ("fabric-manager-not-running", "fabric-manager-version-differs", "gpu-fabric-not-ready")),
    Cause(
        "a container lacks hccn.conf or devices",
        5,
        (),
        ("container-hccn-conf-missing", "container-devices-missing"),
        ("container-hccn-conf-missing",),
    ),
    Cause(
        "versions that do not fit",
        5,
        (),
        ("torch-npu-cann-mismatch", "torch-npu-cannot-load", "torch-npu-mismatch", "torch-cuda-too-new")
        + ("gpu-driver-mismatch",),
        ("torch-npu-cann-mismatch",),
    ),
    Cause(
        "GPU hardware",
        5,
        (),
        ("gpu-lost", "gpu-ecc-errors", "gpu-row-remap-failed", "gpu-xid-logged"),
        not_found=1,
        why="it freezes under load alone, which `doctor smoke` may show",
    ),
    Cause(
        "a firewall on the host",
        4,
        ("ports are dropped", "MASTER_PORT is dropped on the way out", "data is dropped, connections are made"),
        ("firewall-blocks-job",),
    ),
    Cause("ACS and IOMMU", 4, (), ("pcie-acs-redirects",), ("pcie-acs-redirects",)),
    Cause(
        "a rank twice, several ranks on one device",
        3,
        ("a rank twice", "a rank that is not below the size", "torchrun --nproc-per-node many"),
        ("rank-numbers-wrong", "launch-size-wrong", "visible-devices-wrong"),
    ),
    Cause(
        "MASTER_ADDR unresolved; NPU link, hccn.conf, TLS, left-over process",
        7,
        ("master that no host resolves",),
        ("master-address-unresolved", "device-link-down", "hccn-conf-differs", "tls-switch-differs", "npu-busy"),
        ("hccn-conf-differs",),
    ),
    Cause(
        "start skew, known bad releases of torch, NCCL variables that differ",
        5,
        ("the size too great on one host",),
        ("launch-timeouts-disordered", "launch-differs"),
        ("launch-timeouts-disordered",),
        not_found=4,
        why="how far apart ranks start shows in the job; no list of bad releases of torch is kept",
    ),
]  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_each_cause_is_found_by_a_proven_check(cause: Cause) -> None:
    assert set(cause.pairs) <= PAIRS.keys()
    assert set(cause.faults) <= FAULTY
    assert cause.faults or cause.not_found == cause.stories
    assert bool(cause.why) == bool(cause.not_found)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.name)
def test_what_surely_ends_the_job_is_an_error(cause: Cause) -> None:
    warnings = {name for name in cause.faults if CATALOGUE[name].severity is Severity.WARNING}
    assert warnings == set(cause.warns)


def test_the_stories_are_counted_once() -> None:
    assert sum(cause.stories for cause in CAUSES) == 118
    assert sum(cause.not_found for cause in CAUSES) == 18


def table() -> str:
    """A line for each cause: stories, those that are found, and what proves it.

    Found is by cause: each story of a cause with a proof counts, although a proof may be of one of its faults alone.
    """
    lines = [f"{'stories':>7} {'found':>5}  cause: proofs"]
    for cause in CAUSES:
        proofs = [f"{len(cause.pairs)} pairs"] if cause.pairs else []
        proofs += [f"faults {', '.join(cause.faults)}"] if cause.faults else []
        proofs += [f"{cause.not_found} not found: {cause.why}"] if cause.not_found else []
        lines.append(f"{cause.stories:7} {cause.stories - cause.not_found:5}  {cause.name}: {'; '.join(proofs)}")
    count = sum(cause.stories - cause.not_found for cause in CAUSES)
    paired = sum(cause.stories - cause.not_found for cause in CAUSES if cause.pairs)
    lines.append(
        f"{sum(cause.stories for cause in CAUSES):7} {count:5}  of which {paired} at most beside a real program"
    )
    return "\n".join(lines)


def test_how_many_stories_are_found() -> None:
    """By cause, not story by story: the reports themselves are not kept here. See ``table()``."""
    assert table().splitlines()[-1].split()[:5] == ["118", "100", "of", "which", "58"]


def proofs() -> list[Proof]:
    """Every injection of every cause, and the threads that were found later."""
    created_proofs = []
    for cause in CAUSES:
        created_proofs += [proof_of_pair(cause.name, name) for name in cause.pairs]
        created_proofs += [
            proof_of_fault(cause.name, name, "warning" if name in cause.warns else "error") for name in cause.faults
        ]
    return [*created_proofs, *public_proofs()]


def test_each_proof_is_a_test_that_exists() -> None:
    assert [proof.test for proof in proofs() if not proof.is_there] == []


def test_named_threads_belong_to_a_cause() -> None:
    """Eight of the 118 are known by their thread."""
    assert set(THREADS.values()) <= {cause.name for cause in CAUSES}
    assert len(THREADS) == 8


def test_how_many_injections_have_a_real_program_beside_them() -> None:
    beside = [proof for proof in proofs() if proof.program != "none"]
    assert len(beside) >= 50
    assert len({proof.test for proof in proofs()}) >= 90


def test_the_tests_of_containers_are_there() -> None:
    for name in PODMAN:
        assert hasattr(test_podman, f"test_{name.replace(' ', '_')}")


def test_there_are_more_than_sixty_pairs_with_a_real_program() -> None:
    rows = [*GLOO, *test_launch_pairs.GLOO_ROWS]
    lives = sum(row.lives for row in rows) + sum(row[1] for row in test_launch_pairs.TORCHRUN_ROWS)
    lives += sum(not row[1] for row in test_openmpi_pairs.ROWS)
    pairs = len(rows) + len(test_launch_pairs.TORCHRUN_ROWS) + len(test_openmpi_pairs.ROWS)
    assert pairs >= 120
    assert 0.25 < lives / pairs < 0.5


if __name__ == "__main__":
    print(table())
    for proof in proofs():
        print("\t".join((proof.cause, proof.injected, proof.program, proof.test, proof.verdict)))
