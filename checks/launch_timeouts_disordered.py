from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, product_family

TIMEOUT_VARIABLES = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_EVENT_TIMEOUT")
DEFAULT_EXEC_TIMEOUT_S = 1836.0
A1_STEP_S = 68
"""On A1 the operation timeout is a multiple of it."""
CONNECT_EXTRA_S = 20
"""HCCL waits this much longer than HCCL_CONNECT_TIMEOUT says."""
EVENT_EXTRA_S = 32
"""HCCL_EVENT_TIMEOUT's default, 1868 s, is that much above HCCL_EXEC_TIMEOUT's."""
WATCHDOGS = {"TORCH_NCCL": 480.0, "TORCH_HCCL": 600.0}
"""The prefix of a watchdog's variables, and the seconds of its heartbeat timeout where none is set."""
LARGE_FLEETS = ((5000, 600), (3000, 240))
"""Ranks, and the seconds to connect that the vendor advises from so many on."""
DEFAULT_CONNECT_S = 120
HEARTBEAT = "HEARTBEAT_TIMEOUT_SEC"


@check(severity=WARNING, area="ranks")
def launch_timeouts_disordered(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """The timeouts of HCCL, torch_npu, NCCL's watchdog and the scheduler end in the order that names the cause.

    ## Why it matters
    The timeout whose message names the late rank must end first. Where HCCL_EXEC_TIMEOUT is the shorter one, it ends
    the job before HCCL_CONNECT_TIMEOUT says which rank did not connect. With a rank table, ranks connect only after all
    have started, and torch_npu asks for at least 300 s.
    On A1 an HCCL_EXEC_TIMEOUT below 68 s is 0, no timeout at all. A scheduler's time limit that is shorter than a
    timeout kills the job before the timeout says which rank is missing. A flight recorder that may keep nothing, or
    that no thread writes, leaves no trace of the hang that it was switched on for.

    ## What to do
    {remedy}
    HCCL_CONNECT_TIMEOUT < HCCL_EXEC_TIMEOUT < HCCL_EVENT_TIMEOUT, for example 300, 1836 and 1868; the scheduler's limit
    above all of them. How far apart the ranks start is not known before the job: HCCL_CONNECT_TIMEOUT must be longer
    than what they load before they connect, and grows with their number.

    ## Source
    HCCL documentation, HCCL_CONNECT_TIMEOUT (HCCL waits 20 s longer) and HCCL_EXEC_TIMEOUT (multiples of 68 s on A1);
    torch_npu, HCCL_EVENT_TIMEOUT and its warnings; PyTorch, ProcessGroupNCCL.hpp
    (TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC and TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 480 s where it is not set), and
    ProcessGroupNCCL.cpp: the monitor writes the flight recorder, and only where its buffer is not 0. torch_npu has the
    same settings with TORCH_HCCL, and keeps and monitors nothing where they are not set. HCCL user guide, "connection
    failures in large clusters": 240 s to connect for 3,000 NPUs, 600 s for 5,000.
    """
    timeouts = {name: _seconds(launch.env.get(name, "")) for name in TIMEOUT_VARIABLES}
    connect, execute, event = timeouts.values()
    recorders = [finding for prefix in WATCHDOGS for finding in _recorder(launch.env, prefix)]
    is_large = _advised_seconds(launch, products) > (DEFAULT_CONNECT_S if connect is None else connect)
    is_set = any(name.startswith(tuple(WATCHDOGS)) for name in launch.env) or any(
        v is not None for v in timeouts.values()
    )
    too_long = launch.time_left_s is not None and (launch.time_limit_s or 0) > launch.time_left_s
    if not (is_set or is_large or too_long):
        raise Skip("no timeout is set")
    yield from recorders
    if too_long:
        yield Finding(
            "the launch line's time limit is longer than what the scheduler leaves the job",
            observed=f"{launch.time_limit_s:.0f} s",
            expected=filled("at most {0} s", f"{launch.time_left_s:.0f}"),
            remedy="Shorten the launch line's limit, or ask the scheduler for more time (`sbatch --time`).",
        )
    if is_large:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is short for {ranks} ranks",
            ranks=launch.world_size,
            observed=f"{DEFAULT_CONNECT_S if connect is None else connect:g} s",
            expected=filled("at least {0} s", _advised_seconds(launch, products)),
            remedy=filled(
                "In the job's script: `export HCCL_CONNECT_TIMEOUT={0}`.", _advised_seconds(launch, products)
            ),
        )
    limit = execute if execute is not None else DEFAULT_EXEC_TIMEOUT_S
    if connect is not None and limit and connect >= limit:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is not below HCCL_EXEC_TIMEOUT",
            variable="HCCL_CONNECT_TIMEOUT",
            observed=f"{connect:g} s",
            expected=filled("below {0} s", f"{limit:g}"),
            remedy=filled(
                "In the job's script: `export HCCL_EXEC_TIMEOUT={0} HCCL_EVENT_TIMEOUT={1}`, or set "
                "HCCL_CONNECT_TIMEOUT below {2}.",
                longer := int(connect // A1_STEP_S + 1) * A1_STEP_S,
                longer + EVENT_EXTRA_S,
                f"{limit:g}",
            ),
        )
    if event is not None and limit and event <= limit:
        yield Finding(
            "HCCL_EVENT_TIMEOUT is not above HCCL_EXEC_TIMEOUT",
            observed=f"{event:g} s",
            expected=filled("above {0} s", f"{limit:g}"),
            remedy=filled("In the job's script: `export HCCL_EVENT_TIMEOUT={0}`.", int(limit) + EVENT_EXTRA_S),
        )
    if execute is not None and 0 < execute < A1_STEP_S and _is_a1(launch, products):
        yield Finding(
            "HCCL_EXEC_TIMEOUT is rounded down to 0 on A1",
            observed=f"{execute:g} s",
            expected=filled("at least {0} s", A1_STEP_S),
            remedy=filled(
                "In the job's script: `export HCCL_EXEC_TIMEOUT={0}`, a multiple of 68.", f"{DEFAULT_EXEC_TIMEOUT_S:g}"
            ),
        )
    for name, seconds in {"HCCL_CONNECT_TIMEOUT": connect, "HCCL_EXEC_TIMEOUT": execute}.items():
        extra = CONNECT_EXTRA_S if name == "HCCL_CONNECT_TIMEOUT" else 0
        limits = [limit for limit in (launch.time_limit_s, launch.time_left_s) if limit]
        if seconds and limits and seconds + extra >= min(limits):
            yield Finding(
                "the scheduler's time limit ends before {variable}",
                variable=name,
                observed=f"{min(limits):.0f} s",
                expected=filled("above {0} s", f"{seconds + extra:g}"),
                remedy=filled(
                    "Ask the scheduler for more than {0} s, or lower {1} on all hosts.", f"{seconds + extra:g}", name
                ),
            )
    if connect is not None and connect < 300 and launch.rank_table_path:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is short for a start with a rank table",
            observed=f"{connect:g} s",
            expected="at least 300 s",
            remedy="In the job's script: `export HCCL_CONNECT_TIMEOUT=300`.",
        )


def _recorder(env: Mapping[str, str], prefix: str) -> Iterator[Finding]:
    """What keeps the flight recorder of a watchdog from being written. ``prefix``: TORCH_NCCL or TORCH_HCCL."""
    dump, heartbeat = (_seconds(env.get(f"{prefix}_{name}", "")) for name in ("WAIT_TIMEOUT_DUMP_MILSEC", HEARTBEAT))
    limit = WATCHDOGS[prefix] if heartbeat is None else heartbeat
    if dump is not None and dump / 1000 >= limit > 0:
        yield Finding(
            "the heartbeat timeout ends the process before the flight recorder has written",
            observed=filled("{0} s to write", f"{dump / 1000:g}"),
            expected=filled("below {0} s", f"{limit:g}"),
            remedy=filled("In the job's script: `export {0}_{1}={2}`.", prefix, HEARTBEAT, int(2 * dump / 1000)),
        )
    if env.get(f"{prefix}_DUMP_ON_TIMEOUT") not in ("1", "true", "True"):
        return
    names = (f"{prefix}_TRACE_BUFFER_SIZE", *(["TORCH_FR_BUFFER_SIZE"] if prefix == "TORCH_NCCL" else []))
    buffers = [name for name in names if name in env]
    if all(_seconds(env[name]) == 0 for name in buffers) and (buffers or prefix == "TORCH_HCCL"):
        yield Finding(
            "{variable} is set, and the flight recorder keeps nothing",
            variable=f"{prefix}_DUMP_ON_TIMEOUT",
            observed=filled("{0} is not set", names[0]) if not buffers else f"{buffers[0]}={env[buffers[0]]}",
            expected=f"{(buffers or names)[0]}=2000",
            remedy=filled("In the job's script: `export {0}=2000`.", (buffers or names)[0]),
        )
    monitoring = f"{prefix}_ENABLE_MONITORING"
    if env.get(monitoring, "1" if prefix == "TORCH_NCCL" else "0") in ("0", "false", "False"):
        yield Finding(
            "{variable} is set, and no thread writes the flight recorder",
            variable=f"{prefix}_DUMP_ON_TIMEOUT",
            observed=f"{monitoring}={env[monitoring]}" if monitoring in env else filled("{0} is not set", monitoring),
            expected=f"{monitoring}=1",
            remedy=filled("In the job's script: `export {0}=1`.", monitoring),
        )


def _advised_seconds(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> int:
    """To connect, by the number of ranks; 0 where HCCL is not what connects them, or for a few."""
    uses_hccl = bool(products or launch.product) or any(name.startswith("HCCL_") for name in launch.env)
    ranks = launch.world_size or 0
    return next((seconds for least, seconds in LARGE_FLEETS if ranks >= least), 0) if uses_hccl else 0


def _is_a1(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> bool:
    try:
        return product_family(launch, products) == "A1"
    except Unreadable:
        return False


def _seconds(text: str) -> float | None:
    number, _, rest = text.partition(".")
    right = number.isascii() and number.isdecimal() and len(number) < 11 and (not rest or rest.isdecimal())
    return float(text) if right and text.isascii() else None
