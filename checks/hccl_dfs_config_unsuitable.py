from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.job import LaunchConfig

DETECTION = {
    "cluster_heartbeat": "on",
    "stuck_detection": "on",
    "connection_fault_detection_time": "20",
    "connection_fault_detction_time": "20",  # as CANN 8.2 and 8.3 spell it
}
"""What finds the rank that caused a failure, with its default."""
OFF = ("off", "0")


@check(severity=WARNING, area="ranks")
def hccl_dfs_config_unsuitable(launch: LaunchConfig) -> Iterator[Finding]:
    """HCCL_DFS_CONFIG leaves HCCL's fault detection on, and its costly consistency check off.

    ## Why it matters
    From CANN 8.2 on, HCCL itself finds out which rank caused a failure, and prints it in the log of every rank. The
    heartbeat of the cluster, the detection of stuck ranks and the probe after a connection timeout are on by default.
    With one of them off, a failed job leaves timeouts on all ranks, and `doctor diagnose` has no rank to name.
    `inconsistent_check:on` compares the operators of all ranks, for about 5 % of the speed and 10 GB of host memory.

    ## What to do
    Where the job is launched: `export HCCL_DFS_CONFIG={expected}`. {once}

    ## Source
    CANN 8.5 documentation, HCCL_DFS_CONFIG (commlib/hcclug/hcclug_000103, maintenance reference envref_07_0148): the
    items, their defaults, and the cost of `inconsistent_check`. Earlier versions do not read the variable.
    """
    present = launch.env.get("HCCL_DFS_CONFIG", "")
    values = dict(_items(present))
    changes = {item: DETECTION[item] for item, value in values.items() if item in DETECTION and value in OFF}
    changes |= {"inconsistent_check": "off"} if values.get("inconsistent_check") == "on" else {}
    expected = ",".join(f"{item}:{value}" for item, value in {**values, **changes}.items() if item)
    for item, value in values.items():
        if item in DETECTION and value in OFF:
            yield Finding(
                "HCCL_DFS_CONFIG switches {item} off: no log will name the rank that causes a failure",
                item=item,
                once="",
                observed=present,
                expected=expected,
            )
        if item == "inconsistent_check" and value == "on":
            yield Finding(
                "HCCL_DFS_CONFIG switches {item} on: about 5 % slower, and 10 GB of host memory",
                item=item,
                once="Switch `inconsistent_check` on for the one run that looks for ranks with different operators.",
                observed=present,
                expected=expected,
            )


def _items(text: str) -> Iterator[tuple[str, str]]:
    """The items of ``cluster_heartbeat:on,stuck_detection:off``, each once; the last of several counts."""
    pairs = (part.partition(":") for part in text.split(","))
    yield from sorted({item.strip(): value.strip().lower() for item, _, value in pairs}.items())
