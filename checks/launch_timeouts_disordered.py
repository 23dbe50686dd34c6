from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, product_family

TIMEOUT_VARIABLES = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_EVENT_TIMEOUT")
DEFAULT_EXEC_TIMEOUT_S = 1836.0
A1_STEP_S = 68
"""On A1 the operation timeout is a multiple of it."""
CONNECT_EXTRA_S = 20
"""HCCL waits this much longer than HCCL_CONNECT_TIMEOUT says."""
HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
DEFAULT_HEARTBEAT_S = 480.0
DUMP_WAIT = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"


@check(severity=WARNING, area="ranks")
def launch_timeouts_disordered(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """The timeouts of HCCL, torch_npu, NCCL's watchdog and the scheduler end in the order that names the cause.

    ## Why it matters
    If the outer timeout is the shorter one, it ends the job first, and the message that names the late rank never
    appears. With a rank table, ranks connect only after all have started: torch_npu asks for at least 300 s to connect.
    On A1 an HCCL_EXEC_TIMEOUT below 68 s is 0, no timeout at all. A scheduler's time limit that is shorter than a
    timeout kills the job before the timeout says which rank is missing.

    ## What to do
    HCCL_CONNECT_TIMEOUT < HCCL_EXEC_TIMEOUT < HCCL_EVENT_TIMEOUT, for example 300, 1836 and 1868; the scheduler's limit
    above all of them. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC above the seconds that the flight recorder needs to write.

    ## Source
    HCCL documentation, HCCL_CONNECT_TIMEOUT (HCCL waits 20 s longer) and HCCL_EXEC_TIMEOUT (multiples of 68 s on A1);
    torch_npu, HCCL_EVENT_TIMEOUT and its warnings; PyTorch, ProcessGroupNCCL.hpp
    (TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC and TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, 480 s where it is not set).
    """
    timeouts = {name: _seconds(launch.env.get(name, "")) for name in TIMEOUT_VARIABLES}
    connect, execute, event = timeouts.values()
    dump, heartbeat = _seconds(launch.env.get(DUMP_WAIT, "")), _seconds(launch.env.get(HEARTBEAT, ""))
    if not any(value is not None for value in (connect, execute, event, dump, heartbeat)):
        raise Skip("no timeout is set")
    limit = execute if execute is not None else DEFAULT_EXEC_TIMEOUT_S
    if connect is not None and limit and connect >= limit:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is not below HCCL_EXEC_TIMEOUT",
            observed=f"{connect:g} s",
            expected=f"below {limit:g} s",
        )
    if event is not None and limit and event <= limit:
        yield Finding(
            "HCCL_EVENT_TIMEOUT is not above HCCL_EXEC_TIMEOUT", observed=f"{event:g} s", expected=f"above {limit:g} s"
        )
    if execute is not None and 0 < execute < A1_STEP_S and _is_a1(launch, products):
        yield Finding(
            "HCCL_EXEC_TIMEOUT is rounded down to 0 on A1",
            observed=f"{execute:g} s",
            expected=f"at least {A1_STEP_S} s",
        )
    if dump is not None and dump / 1000 >= (DEFAULT_HEARTBEAT_S if heartbeat is None else heartbeat) > 0:
        yield Finding(
            "the heartbeat timeout ends the process before the flight recorder has written",
            observed=f"{dump / 1000:g} s to write",
            expected=f"below {DEFAULT_HEARTBEAT_S if heartbeat is None else heartbeat:g} s",
        )
    for name, seconds in {"HCCL_CONNECT_TIMEOUT": connect, "HCCL_EXEC_TIMEOUT": execute}.items():
        extra = CONNECT_EXTRA_S if name == "HCCL_CONNECT_TIMEOUT" else 0
        if seconds and launch.time_limit_s and seconds + extra >= launch.time_limit_s:
            yield Finding(
                "the scheduler's time limit ends before {variable}",
                variable=name,
                observed=f"{launch.time_limit_s:g} s",
                expected=f"above {seconds + extra:g} s",
            )
    if connect is not None and connect < 300 and launch.rank_table_path:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is short for a start with a rank table",
            observed=f"{connect:g} s",
            expected="at least 300 s",
        )


def _is_a1(launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> bool:
    try:
        return product_family(launch, products) == "A1"
    except Unreadable:
        return False


def _seconds(text: str) -> float | None:
    number, _, rest = text.partition(".")
    right = number.isascii() and number.isdecimal() and len(number) < 11 and (not rest or rest.isdecimal())
    return float(text) if right and text.isascii() else None
