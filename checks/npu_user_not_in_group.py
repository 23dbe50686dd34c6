from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.facts.access import JobAccess


@check(severity=ERROR, area="devices")
def npu_user_not_in_group(access: JobAccess) -> Iterator[Finding]:
    """The job's user may open the device files of the NPUs.

    ## Why it matters
    npu-smi prints `dcmi module initialize failed. ret is -8005` and torch_npu finds no device, as if the driver were
    broken; as root everything works.

    ## What to do
    Put the user into the group, on {host}, and log in again: `usermod -aG {group} {user}`. Files that only root may
    open: the driver's service sets their mode in the minutes after a start; wait, and if the mode stays, reinstall the
    driver.

    ## In a container
    Start the container of {host} again as root, or on its host with the group of the device files: `docker run
    --group-add $(stat -c %g /dev/davinci_manager)`. In Kubernetes, Volcano and MindCluster:
    `securityContext.supplementalGroups` of the pod.

    ## Source
    Installation files of the driver: mode 660 for HwHiAiUser, or 666 after an installation for all users.
    """
    if not access.denied_files:
        return
    first = access.denied_files[0]
    file = access.files[first]
    shared = file.mode[-2] in "67"
    yield Finding(
        "{user} is not in the group {group} and may not open {first}"
        if shared and file.group not in access.groups
        else "{user} may not open {first} (mode {mode}, owner {owner})",
        user=access.user,
        group=file.group if shared else "HwHiAiUser",
        first=first,
        files=len(access.denied_files),
        mode=file.mode,
        owner=file.user,
        observed=list(access.groups),
        expected=filled("the group {0}", file.group) if shared else filled("{0} can be opened", first),
    )
