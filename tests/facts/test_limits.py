"""Limits of a process, as /proc/self/limits shows them, and RDMA adapters."""

from __future__ import annotations

from hypothesis import given

from doctor.engine.fact import Output, Unreadable
from doctor.facts.limits import Limit, RdmaAdapters, ResourceLimits
from tests.facts.answers import learned
from tests.facts.garbage import ANYTHING, value_of

TEXT = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max processes             127235               127235               processes
Max open files            1024                 1048576              files
Max locked memory         65536                unlimited            bytes
Max address space         unlimited            unlimited            bytes
"""


def test_the_kernels_table() -> None:
    assert value_of(ResourceLimits, TEXT) == ResourceLimits(
        nofile=Limit(1024, 1048576),
        memlock=Limit(65536, None),
        nproc=Limit(127235, 127235),
        others={"cpu time": Limit(None, None), "address space": Limit(None, None)},
    )


def test_the_limits_of_this_process() -> None:
    with open("/proc/self/limits") as file:
        assert isinstance(value_of(ResourceLimits, file.read()), ResourceLimits)


def test_a_table_that_ends_early() -> None:
    assert value_of(ResourceLimits, TEXT[:250]) == Unreadable(
        "/proc/self/limits: no line 'Max open files' with two values"
    )


def test_what_holds() -> None:
    assert Limit(None, None).allows(10**9)
    assert Limit(5, None).allows(5)
    assert not Limit(5, None).allows(6)
    assert Limit(5, None).can_be_raised_to(6)
    assert not Limit(5, 5).can_be_raised_to(6)


@given(ANYTHING)
def test_garbage_is_no_limit(text: str) -> None:
    assert isinstance(value_of(ResourceLimits, text), Unreadable)


def test_adapters() -> None:
    path = "/sys/class/infiniband/{}/node_guid"
    outputs = {path.format(name): Output(out="0c42:a103:0065:1f2e\n") for name in ("mlx5_0", "mlx5_1")}
    assert learned(RdmaAdapters, outputs) == RdmaAdapters(names=("mlx5_0", "mlx5_1"))
    assert learned(RdmaAdapters, {}) == RdmaAdapters(names=())
