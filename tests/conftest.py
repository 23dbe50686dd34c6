"""Fixtures for all tests: test hosts (see `tests.hosts.fleet`), made when the first test asks for them.

A test that uses them gets the marker ``hosts`` by itself. Where hosts cannot be made it is skipped, and says why; in
CI it fails instead.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from doctor.remote.runtime.host_texts import HOST_TEXTS
from tests import sampling, scheduling, workers
from tests.cpu_seconds import CpuSeconds
from tests.examples import register_profiles
from tests.file_times import FileTimes
from tests.hosts.fleet import Fleet, Overrides, merge, sweep, unavailable
from tests.hosts.gpu import gpu_fleet
from tests.hosts.kubernetes.cluster import Cluster
from tests.hosts.kubernetes.cluster import unavailable as no_cluster
from tests.hosts.npu import Family, npu_fleet

register_profiles()
hypothesis.settings.load_profile("sample")

# A run of the tests is none of the developer's history, also where a test takes all variables of doctor away.
STATE = tempfile.TemporaryDirectory(prefix="state-of-tests-")
(Path(STATE.name) / "doctor").mkdir(mode=0o700)
(Path(STATE.name) / "doctor" / "history").symlink_to(os.devnull)
atexit.register(STATE.cleanup)
os.environ |= {"DOCTOR_HISTORY": "off", "XDG_STATE_HOME": STATE.name}

FLEETS = pytest.StashKey[list[Fleet]]()

PREPARED: Overrides = {
    "sysctl": {"net.ipv4.ip_local_reserved_ports": "60000-60031", "net.ipv4.tcp_max_syn_backlog": "4096"},
    "files": {"/etc/sysctl.d/90-cluster.conf": "net.ipv4.ip_local_reserved_ports = 60000-60031\n"},
}
"""What a careful administrator has done on every host of a training cluster."""


LOADED = pytest.StashKey[frozenset[str]]()
"""The modules that were loaded while tests were collected, which every worker does."""

gc.disable()  # of what is collected nothing is garbage: see `pytest_collection_finish`


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[LOADED] = frozenset(sys.modules)
    gc.enable()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="Run also the tests marked `full`, and all those marked `sample`."
    )
    parser.addoption("--cpu-seconds", metavar="FILE", help="Write the costly tests into FILE (tests/cpu_seconds.py).")
    workers.add_option(parser)


def pytest_report_header(config: pytest.Config) -> str:
    return f"sample: {'all' if config.getoption('--full') else f'DOCTOR_TEST_SAMPLE={sampling.commit()}'}"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        hypothesis.settings.load_profile("full")
    config.stash[FLEETS] = []
    config.pluginmanager.register(FileTimes(config), "file-times")
    if config.getoption("cpu_seconds"):
        config.pluginmanager.register(CpuSeconds(config.getoption("cpu_seconds")), "cpu-seconds")
    if config.getoption("workers"):
        config.pluginmanager.register(workers.Workers(config.getoption("workers")), "workers")


@pytest.hookimpl(tryfirst=True)  # before -m selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("cluster"):
            mark_of_cluster(item)
    if not config.getoption("--full"):
        extra = [item for item in items if item.get_closest_marker("full")]
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        others = sampling.left_out(items, sampling.commit())
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=[*extra, *others])
    for item in items:
        if item.get_closest_marker("torch") and not find_spec("torch"):
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))
        if "make_fleet" in getattr(item, "fixturenames", ()):
            item.add_marker("hosts")
        if item.get_closest_marker("hosts") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))  # a fleet of hosts that starts beside others takes two minutes
    items.sort(key=lambda item: -scheduling.seconds_of(item.nodeid))


def mark_of_cluster(item: pytest.Item) -> None:
    """With ``--full``, and whenever KUBERNETES_BIN names the folder that tests/hosts/kubernetes/build.sh has filled."""
    item.add_marker(pytest.mark.hosts)
    item.add_marker(pytest.mark.timeout(900))
    if not os.environ.get("KUBERNETES_BIN"):
        item.add_marker(pytest.mark.full)
    if reason := no_cluster():
        item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real Kubernetes, of as many nodes as the module's marker says, with what its ``furnish`` puts there."""
    made = Cluster(*request.node.get_closest_marker("cluster").args)
    try:
        if furnish := getattr(request.module, "furnish", None):
            furnish(made)
        yield made
    finally:
        made.end()


@pytest.fixture(scope="session")
def make_fleet(request: pytest.FixtureRequest) -> Iterator[Callable[..., Fleet]]:
    """``make_fleet(4, overrides, ...)`` is `Fleet.up`; the fleet is ended with the session, if not before."""
    reason = unavailable()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)
    sweep()
    fleets = request.config.stash[FLEETS]

    def make(*args: Any, **options: Any) -> Fleet:
        fleets.append(Fleet.up(*args, **options))
        return fleets[-1]

    yield make
    while fleets:
        fleets.pop().down()


@pytest.fixture(autouse=True)
def mended_fleets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hosts that a test has changed, other than by ``with fleet.broken(...)``, are made anew after it."""
    yield
    for fleet in request.config.stash[FLEETS]:
        fleet.mend()


def prepared(family: Family) -> dict[str, Overrides]:
    """Four hosts with NPUs, prepared."""
    return {name: merge(PREPARED, own_values) for name, own_values in npu_fleet(family, 4).items()}


@pytest.fixture(scope="session")
def fleet_cpu(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four plain hosts, with no accelerator."""
    return make_fleet(4, {"*": PREPARED}, shm="4g")


@pytest.fixture(scope="session")
def fleet_a1(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four healthy hosts with 8 Ascend 910 NPUs each."""
    return make_fleet(4, prepared("A1"), shm="4g")


@pytest.fixture(scope="session")
def fleet_a2(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four healthy hosts with 8 Ascend 910B1 NPUs each."""
    return make_fleet(4, prepared("A2"), shm="4g")


@pytest.fixture(scope="session")
def fleet_a3(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four healthy hosts of one super pod, with 16 Ascend 910C dies each and no device addresses."""
    return make_fleet(4, prepared("A3"), shm="4g")


@pytest.fixture(scope="session")
def fleet_a5(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four healthy hosts with 8 NPUs of the 950 family each."""
    return make_fleet(4, prepared("A5"), shm="4g")


@pytest.fixture(scope="session")
def fleet_gpu(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Four healthy hosts with 4 NVIDIA H100 GPUs and two RoCE adapters each."""
    return make_fleet(4, {name: merge(PREPARED, own_values) for name, own_values in gpu_fleet(4).items()}, shm="4g")


def pytest_runtest_setup() -> None:
    """What programs for hosts have filled in another test, in this process, goes with no message of the next one."""
    HOST_TEXTS.clear()
