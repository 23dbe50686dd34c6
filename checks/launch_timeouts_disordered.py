from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.job import LaunchConfig

TIMEOUT_VARIABLES = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT", "HCCL_EVENT_TIMEOUT")
DEFAULT_EXEC_TIMEOUT_S = 1836.0


@check(severity=WARNING, area="ranks")
def launch_timeouts_disordered(launch: LaunchConfig) -> Iterator[Finding]:
    """HCCL's connect timeout is below its operation timeout, and torch_npu's event timeout is above both.

    ## Why it matters
    If the outer timeout is the shorter one, it ends the job first, and the message that names the late rank never
    appears. With a rank table, ranks connect only after all have started: torch_npu asks for at least 300 s to connect.

    ## What to do
    HCCL_CONNECT_TIMEOUT < HCCL_EXEC_TIMEOUT < HCCL_EVENT_TIMEOUT, for example 300, 1836 and 1868.

    ## Source
    HCCL documentation, HCCL_CONNECT_TIMEOUT; torch_npu, HCCL_EVENT_TIMEOUT and its warnings.
    """
    timeouts = {name: _seconds(launch.env.get(name, "")) for name in TIMEOUT_VARIABLES}
    connect, execute, event = timeouts.values()
    if connect is None and execute is None and event is None:
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
    if connect is not None and connect < 300 and launch.rank_table_path:
        yield Finding(
            "HCCL_CONNECT_TIMEOUT is short for a start with a rank table",
            observed=f"{connect:g} s",
            expected="at least 300 s",
        )


def _seconds(text: str) -> float | None:
    number, _, rest = text.partition(".")
    right = number.isascii() and number.isdecimal() and len(number) < 11 and (not rest or rest.isdecimal())
    return float(text) if right and text.isascii() else None
