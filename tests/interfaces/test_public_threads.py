"""Launches that people told of in public threads, each beside the real program: doctor fails exactly where it dies.

Three hosts in one network. What a thread leaves open (names, addresses, the number of hosts) is filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from tests.attack.interfaces import NICS, Ground, World, attack
from tests.hosts.fleet import Fleet
from tests.hosts.slurm import needs_mpirun
from tests.interfaces.gloo_fleet import gloo_fleet

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.full,
    pytest.mark.torch,
    pytest.mark.timeout(500),  # a job that dies is tried again, with more patience
    needs_mpirun,
]


class Thread(NamedTuple):
    """One thread's launch."""

    thread: str
    """github.com/..."""
    cause: str
    lives: bool
    environ: Mapping[str, str] = {}
    master: str = "10.69.1.1"
    launcher: str = "hand"
    options: tuple[str, ...] = ()
    setup: str = ""
    """On each host; $N is its number from 1."""


def own_name(address: str) -> str:
    return f'sed "/ $(hostname)$/d" /run/hosts.kept >/etc/hosts; echo "{address} $(hostname)" >>/etc/hosts'


def nic(sort: str, name: str) -> str:
    return NICS[sort].replace("NIC", name)


DOCKER, VIRTUAL = NICS["docker0"], NICS["virbr0"]
INCLUDE, EXCLUDE = ("--mca", "btl_tcp_if_include"), ("--mca", "btl_tcp_if_exclude")
THREADS = [
    Thread("aws-samples/aws-do-eks/pull/51", "NCCL's exclusion for gloo", False, {"GLOO_SOCKET_IFNAME": "^lo,docker,veth,eni"}),
    Thread("AMD-AGI/Primus/pull/1063", "an address for the name", False, {"GLOO_SOCKET_IFNAME": "10.69.1.1"}),
    Thread("PaddlePaddle/Paddle/issues/37951", "the own name is loopback", False, setup=own_name("127.0.0.1")),
    Thread("aws-samples/aws-do-eks/pull/50", "the own name is unknown", False, setup=own_name("#")),
    Thread("NVIDIA/TransformerEngine/issues/1170", "a beginning for the name", False, {"GLOO_SOCKET_IFNAME": "eth"}),
    Thread("NVIDIA/nccl/issues/286", "loopback on all hosts", False, {"GLOO_SOCKET_IFNAME": "lo"}),
    Thread("Mesh-LLM/mesh-llm/issues/542", "docker0 of one address", False, {"GLOO_SOCKET_IFNAME": "docker0"}, setup=DOCKER),
    Thread("gpustack/gpustack/issues/2125", "the interface is named", True, {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}, setup=DOCKER),
    Thread("pytorch/pytorch/issues/15638", "MASTER_ADDR is loopback", False, master="127.0.0.1"),
    Thread("NVIDIA/Megatron-LM/issues/343", "MASTER_ADDR is localhost", False, master="localhost"),
    Thread("deepinsight/insightface/issues/1657", "MASTER_ADDR is 0.0.0.0", False, master="0.0.0.0"),
    Thread("thu-coai/CDial-GPT/issues/103", "a port above 65535", False, {"MASTER_PORT": "66660"}),
    Thread("pytorch/pytorch/issues/107021", "an endpoint of no host", False, master="192.0.0.1", launcher="torchrun c10d"),
    Thread("pytorch/pytorch/pull/116304", "an endpoint that is localhost", False, master="localhost", launcher="torchrun c10d"),
    Thread("pytorch/pytorch/issues/69197", "the endpoint by name", True, master="nw0001", launcher="torchrun c10d"),
    Thread("pytorch/pytorch/issues/64926", "an endpoint in a second network", False, master="10.220.0.1", launcher="torchrun c10d", setup=nic("second network", "ens1f0")),
    Thread("open-mpi/ompi/issues/6377", "virbr0 of one address", False, launcher="mpirun", setup=VIRTUAL),
    Thread("horovod/horovod/issues/310", "docker0 of one address", False, launcher="mpirun", setup=DOCKER),
    Thread("open-mpi/ompi/issues/4963", "one interface is included", True, launcher="mpirun", options=(*INCLUDE, "eth0"), setup=DOCKER),
    Thread("bayesiancook/pbmpi/issues/1", "docker0 is excluded, and lo", True, launcher="mpirun", options=(*EXCLUDE, "lo,docker0"), setup=DOCKER),
    Thread("tomMoral/dicodile/pull/25", "docker0 is excluded, and lo is not", False, launcher="mpirun", options=(*EXCLUDE, "docker0"), setup=DOCKER),
]  # fmt: skip


@pytest.fixture(scope="module")
def ground(make_fleet: Callable[..., Fleet]) -> Iterator[Ground]:
    """Three hosts, whose roots reach each other by SSH."""
    jobs = gloo_fleet(make_fleet, 3, name="nw", subnet="10.69.0.0/16", shm="4g")
    yield Ground(jobs)
    jobs.down()


@pytest.mark.parametrize("setup", THREADS, ids=lambda setup: setup.thread)
def test_doctor_fails_exactly_where_the_program_of_the_thread_dies(ground: Ground, setup: Thread) -> None:
    setups = (f"BASE=eth0\n{setup.setup}",) * 3
    message, text = attack(ground, World(setups, (), dict(setup.environ), setup.master, setup.launcher, setup.options))
    assert message == "agree", text
    assert text.startswith("job lives" if setup.lives else "job dies"), text
