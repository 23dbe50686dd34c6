import re
from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import differing
from doctor.facts.amd_smi import AmdGpus
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig
from doctor.job.variables import VISIBLE_DEVICES
from doctor.smoke.programs.agent.procfs import VISIBLE, visible_devices

ADVISORY = ("listed",)
Inventories = Mapping[str, Mapping[str, NpuInventory | GpuCards | AmdGpus]]


@check(severity=ERROR, area="ranks", advisory=ADVISORY)
def visible_devices_wrong(
    npus: PerHost[NpuInventory] | None,
    gpus: PerHost[GpuCards] | None,
    amd_gpus: PerHost[AmdGpus] | None,
    listed: PerHost[GpuInventory] | None,
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """The devices that CUDA_, HIP_, ROCR_ and ASCEND_RT_VISIBLE_DEVICES name exist, each once, and are enough.

    ## Why it matters
    CUDA, HIP and CANN ignore the list from the first entry that is no device. The ranks behind it end with "invalid
    device ordinal" or "no CUDA-capable device", and all others wait for them. HIP counts the devices that
    ROCR_VISIBLE_DEVICES leaves.

    ## What to do
    On {host}: name devices that exist, as many as there are ranks, in {variable}; or let the job have all of them:
    `unset {variable}`. `npu-smi info`, `nvidia-smi -L` and `amd-smi list` list the devices.

    ## Source
    CUDA C++ Programming Guide, "CUDA Environment Variables" (only devices before the first invalid index are visible);
    CANN documentation, ASCEND_RT_VISIBLE_DEVICES; ROCm, "GPU isolation techniques". The UUID of an NVIDIA GPU, or
    its beginning, is looked up in nvidia-smi's list; other names are not judged. Where what stands before the wrong
    entry is enough for the ranks, the job starts: a warning (CUDA_VISIBLE_DEVICES=0,1 with one rank on a host with one
    H200). A list that is empty or begins with -1 leaves no device (on an H200: "no GPUs found"), which a job on CPUs
    may want: a warning, too.
    """
    inventories: Inventories = {"npu": npus or {}, "nvidia": gpus or {}, "amd": _whole(amd_gpus or {})}
    judged = False
    for vendor, inventory in inventories.items():
        for host, devices in inventory.items():
            earlier = ""
            for variable, value, existing in _lists(launch.environ_of(host), vendor, _numbers(devices)):
                names = _uuids(value, listed.get(host) if listed else None) if vendor == "nvidia" else []
                if variable and _is_list(value):
                    judged = True
                    left = len(visible_devices(value, sorted(existing), vendor))  # type: ignore[no-untyped-call]
                    yield from _wrong_list(host, variable, value, existing, left, launch, earlier)
                elif False in names:
                    judged = True
                    yield _no_such_name(host, variable, value, names.index(False), launch)
                elif variable and vendor != "npu" and existing:
                    left = len(visible_devices(value, sorted(existing), vendor))  # type: ignore[no-untyped-call]
                    judged = judged or not left
                    yield from _not_enough(host, variable, value, len(existing), left, launch)
                earlier = variable
    if not any(inventories.values()):
        alone = list(_of_launch_alone(launch))
        judged = bool(alone)
        yield from (finding for finding in alone if finding is not None)
    yield from _differing_counts(launch, inventories)
    if not judged:
        raise Skip("no variable lists devices by number for a host that has them")


def _uuids(value: str, inventory: GpuInventory | None) -> list[bool]:
    """For each entry of a list of UUIDs, or their beginnings: nvidia-smi lists such a GPU. Empty where not known."""
    entries = [entry.strip().lower() for entry in value[:4096].split(",")]
    if inventory is None or inventory.unread or not all(re.fullmatch(r"gpu-[0-9a-f-]{1,40}", item) for item in entries):
        return []
    uuids = [gpu.uuid.lower() for gpu in inventory.gpus]
    return [any(uuid.startswith(entry) for uuid in uuids) for entry in entries] if all(uuids) else []


def _no_such_name(host: str, variable: str, value: str, place: int, launch: LaunchConfig) -> Finding:
    """``place``: of the first UUID that no GPU has."""
    ranks = launch.ranks_per_host
    finding = Finding(
        "{variable} names {absent}, and nvidia-smi lists no GPU with this UUID",
        hosts=(host,),
        variable=variable,
        absent=value.split(",")[place].strip(),
        observed=value,
        expected="UUIDs that nvidia-smi -L lists",
    )
    return finding.as_warning(isinstance(ranks, int) and 0 < ranks <= place)


def _not_enough(host: str, variable: str, value: str, count: int, left: int, launch: LaunchConfig) -> Iterator[Finding]:
    """None at all, which a job on CPUs may mean, or ``left`` devices, where more ranks than these start."""
    ranks = launch.ranks_per_host
    if left:
        if isinstance(ranks, int) and launch.launchers and ranks > left:
            yield Finding(
                "{variable} leaves {left} devices for {ranks} ranks",
                hosts=(host,),
                variable=variable,
                left=left,
                ranks=ranks,
                observed=value,
                expected=filled("{0} devices, one for each rank", ranks),
            )
        return
    yield Finding(
        "{variable} is {observed}, which leaves the job no device; the host has {count}"
        if value
        else "{variable} is empty, which leaves the job no device; the host has {count}",
        hosts=(host,),
        variable=variable,
        count=count,
        observed=value,
        expected=filled("numbers from 0 to {0}", count - 1),
    ).as_warning()


def _lists(
    environ: Mapping[str, str], vendor: str, existing: frozenset[int]
) -> Iterator[tuple[str, str, frozenset[int]]]:
    """Each variable in force, with its value and the numbers that it may name; without a name where none is set."""
    for names in VISIBLE[vendor]:
        in_force = environ if vendor == "nvidia" else {name for name, value in environ.items() if value}
        variable = next((name for name in names if name in in_force), "")
        value = environ.get(variable, "")
        yield variable, value, existing
        if variable and not _is_list(value):
            return  # what it leaves is not known
        existing = frozenset(range(value.count(",") + 1)) if variable else existing


def _wrong_list(
    host: str, variable: str, value: str, existing: frozenset[int], left: int, launch: LaunchConfig, earlier: str
) -> Iterator[Finding]:
    """``earlier``: the variable that leaves the ``existing`` devices; empty: the host has them.

    ``left``: how many the libraries take of the list.
    """
    numbers = [int(part) for part in value.split(",")]
    absent = [number for number in numbers if number not in existing]
    ranks = launch.ranks_per_host
    if absent and existing:
        expected = filled("numbers from 0 to {0}", max(existing))
        text = "{variable} names device {absent}, and the host has {count}"
        if earlier:
            text = "{variable} names device {absent}, and {earlier} leaves {count}"
    elif len(set(numbers)) < len(numbers):
        expected, text = "each device once", "{variable} names a device twice"
    elif isinstance(ranks, int) and launch.launchers and ranks > len(numbers):
        expected = filled("{0} devices, one for each rank", ranks)
        text = "{variable} names {named} devices for {ranks} ranks"
    else:
        return
    finding = Finding(
        text,
        hosts=(host,),
        variable=variable,
        absent=absent,
        count=len(existing),
        earlier=earlier,
        named=len(numbers),
        ranks=ranks if isinstance(ranks, int) else 0,
        observed=value,
        expected=expected,
    )
    yield finding.as_warning(bool(absent) and isinstance(ranks, int) and 0 < ranks <= left)


def _of_launch_alone(launch: LaunchConfig) -> Iterator[Finding | None]:
    """Where no host is looked at: for each list, too few devices, or one twice (ASCEND_RT_ has a rule for that)."""
    of_gpus = [name for name in VISIBLE_DEVICES if launch.env.get(name) and not name.startswith("ASCEND")]
    for variable in ("ASCEND_RT_VISIBLE_DEVICES", *(of_gpus if len(of_gpus) == 1 else ["CUDA_VISIBLE_DEVICES"])):
        value, ranks = launch.env.get(variable, ""), launch.ranks_per_host
        named = value.count(",") + 1 if _is_list(value) else 0
        if not named or not isinstance(ranks, int) or not launch.launchers:
            continue
        twice = variable in of_gpus and len(set(map(int, value.split(",")))) < named
        if ranks <= named and not twice:
            yield None
            continue
        yield Finding(
            "{variable} names a device twice" if twice else "{variable} names {named} devices for {ranks} ranks",
            variable=variable,
            named=named,
            ranks=ranks,
            host="the job's hosts",
            observed=value,
            expected="each device once" if twice else filled("{0} devices, one for each rank", ranks),
        )


def _differing_counts(launch: LaunchConfig, inventories: Inventories) -> Iterator[Finding]:
    """Hosts whose own variable leaves other numbers of devices than on most hosts."""
    for vendor, inventory in inventories.items():
        lists = {
            host: list(_lists(environ, vendor, _numbers(inventory[host])))
            for host, environ in launch.env_by_host.items()
            if host in inventory
        }
        for place in range(len(VISIBLE[vendor])):
            chosen = {host: entries[place] for host, entries in lists.items() if len(entries) > place}
            counts = {
                host: value.count(",") + 1 if value else len(existing) * (not name)
                for host, (name, value, existing) in chosen.items()
                if _is_list(value) or not value
            }
            variable = next((chosen[host][0] for host in counts if chosen[host][0]), "")
            if variable and len(counts) > 1:
                template = "{variable} leaves {observed} devices; {count} of {total} hosts have {expected}"
                yield from (finding.as_warning() for finding in differing(counts, template, variable=variable))


def _is_list(value: str) -> bool:
    return bool(re.fullmatch(r"\s*[0-9]{1,4}(\s*,\s*[0-9]{1,4})*\s*", value, re.ASCII))


def _whole(amd: Mapping[str, AmdGpus]) -> dict[str, AmdGpus]:
    """Without the hosts that have a GPU which could not be read: how many they have is not known."""
    return {host: inventory for host, inventory in amd.items() if not inventory.unread}


def _numbers(inventory: NpuInventory | GpuCards | AmdGpus) -> frozenset[int]:
    if isinstance(inventory, NpuInventory):
        return frozenset(inventory.devices)
    return frozenset(range(inventory.pci if isinstance(inventory, GpuCards) else len(inventory.gpus)))
