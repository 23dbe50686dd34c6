from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.container import DRIVER_FOLDER, HostContainer, JobContainer, is_within, mount_options

HCCN_CONF = "/etc/hccn.conf"


@check(severity=WARNING, area="addresses")
def container_hccn_conf_missing(container: JobContainer, place: HostContainer) -> Iterator[Finding]:
    """The job's container has the /etc/hccn.conf of its host.

    ## Why it matters
    Mooncake and other transports read the addresses of the NPUs from this file or from hccn_tool. Without both they end
    with "Failed to get device ip from hccn.conf and hccn_tool", or start and return wrong results. A training with HCCL
    alone asks the driver, and does not need the file.

    ## What to do
    On {host}, create the container again, with its own options and {remedy}.

    ## Source
    vllm-ascend issue 7711 (the service started without the file and gave wrong answers), gpustack/runtime pull request
    28 and Mooncake pull request 502 (the messages). Only `--within` shows whether the host has the file.
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    if not is_within(container, place):
        raise Skip("the host's files cannot be read from inside a container; --within compares both")
    if not container.npus:
        raise Skip("the container has no NPU")
    if HCCN_CONF in place.files and HCCN_CONF not in container.files:
        yield Finding(
            "the host has {path}, and the container does not",
            path=HCCN_CONF,
            remedy=mount_options(container.engine, [HCCN_CONF, f"{DRIVER_FOLDER}/tools/hccn_tool"]),
        )
