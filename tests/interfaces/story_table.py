"""The table of the proofs: cause, what is injected, the real program beside it, the test, and the verdict.

The 118 reports are known here by their causes; the few whose threads are named are listed in `THREADS`, and those of
test_public_threads.py are further ones, found later. A row is one injection, not one report.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from tests import test_faults
from tests.containers import test_podman
from tests.interfaces import (
    test_gloo_table,
    test_het_slurm_pairs,
    test_launch_pairs,
    test_openmpi_pairs,
    test_path_table,
    test_public_threads,
)

THREADS = {
    "vllm-project/vllm-ascend/issues/16847": "MASTER_ADDR unresolved; NPU link, hccn.conf, TLS, left-over process",
    "NVIDIA/nccl/issues/375": "the own host name: loopback, missing, repeated",
    "vllm-project/vllm-ascend/issues/7711": "a container lacks hccn.conf or devices",
    "gpustack/runtime/issues/28": "a container lacks hccn.conf or devices",
    "gpustack/runtime/issues/29": "a container lacks hccn.conf or devices",
    "kvcache-ai/Mooncake/issues/502": "a container lacks hccn.conf or devices",
    "NVIDIA/nccl/issues/969": "start skew, known bad releases of torch, NCCL variables that differ",
    "cnblogs 15750172": "a rank twice, several ranks on one device",
}
"""Of the 118, by the thread; the others are not listed one by one."""


class Proof(NamedTuple):
    """One injection and what proves it."""

    cause: str
    injected: str
    program: str
    """The real program that dies or lives beside the verdict; "none" where it needs devices that no test has."""
    module: ModuleType
    function: str
    parameter: str
    """The id of the test's parameter; empty for a test without."""
    verdict: str

    @property
    def test(self) -> str:
        """As pytest takes it."""
        path = f"{self.module.__name__.replace('.', '/')}.py::{self.function}"
        return f"{path}[{self.parameter}]" if self.parameter else path

    @property
    def is_there(self) -> bool:
        """Whether the module has the test, and the test the parameter."""
        function = getattr(self.module, self.function, None)
        return function is not None and (not self.parameter or self.parameter in set(_parameters(function)))


def _parameters(function: Any) -> Iterator[str]:
    for mark in getattr(function, "pytestmark", []):
        if mark.name != "parametrize":
            continue
        ids, values = mark.kwargs.get("ids"), mark.args[1]
        for number, value in enumerate(values):
            if getattr(value, "id", None):
                yield str(value.id)
            elif callable(ids):
                yield str(ids(value))
            elif ids is not None:
                yield str(ids[number])


GLOO = "test_doctor_fails_exactly_where_the_job_dies"
TABLES: list[tuple[ModuleType, str, str, list[tuple[str, str]]]] = [
    (test_gloo_table, GLOO, "gloo", [(row.name, row.check) for row in test_gloo_table.ROWS]),
    (test_path_table, GLOO, "gloo", [(row.name, row.check) for row in test_path_table.ROWS]),
    (test_het_slurm_pairs, "test_preflight_fails_exactly_where_the_job_dies", "Slurm and gloo", [(row.name, row.check) for row in test_het_slurm_pairs.ROWS]),
    (test_launch_pairs, "test_an_error_exactly_where_the_gloo_job_dies", "gloo", [(row.name, row.check) for row in test_launch_pairs.GLOO_ROWS]),
    (test_launch_pairs, "test_an_error_exactly_where_torchrun_dies", "torchrun", [(row[0], row[2]) for row in test_launch_pairs.TORCHRUN_ROWS]),
    (test_launch_pairs, "test_one_host_whose_master_is_elsewhere", "torchrun", [(row[0], "" if row[1] else "master-address-wrong") for row in test_launch_pairs.MASTER_ROWS]),
    (test_openmpi_pairs, "test_an_error_exactly_where_mpirun_dies", "mpirun", list(test_openmpi_pairs.ROWS)),
]  # fmt: skip
PODMAN = "podman "


def proof_of_pair(cause: str, name: str) -> Proof:
    """The proof of a row of one of the tables. Raises: LookupError for none."""
    if name.startswith(PODMAN):
        function = f"test_{name.removeprefix(PODMAN).replace(' ', '_')}"
        return Proof(cause, name, "podman and torch", test_podman, function, "", "shm-docker-default")
    for module, function, program, rows in TABLES:
        for row, text in rows:
            if name in (row, f"{program} {row}"):
                return Proof(cause, row, program, module, function, row, text or "OK")
    raise LookupError(name)


def proof_of_fault(cause: str, check: str, severity: str) -> Proof:
    """The proof of a check on a real host into which its fault was put. Raises: StopIteration for none."""
    row = next(row for row in test_faults.ROWS if row.check == check)
    parameter = f"{row.fleet}-{row}"
    return Proof(
        cause, f"fault {row}", "none", test_faults, "test_the_fault_is_found", parameter, f"{check} ({severity})"
    )


def public_proofs() -> list[Proof]:
    """The threads that were found after the 118."""
    function = "test_doctor_fails_exactly_where_the_program_of_the_thread_dies"
    return [
        Proof(
            setup.cause,
            setup.thread,
            setup.launcher,
            test_public_threads,
            function,
            setup.thread,
            "OK" if setup.lives else "fails",
        )
        for setup in test_public_threads.THREADS
    ]
