from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job.training import (
    NotDecided,
    NotGiven,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    apply_rules,
    correction,
)

_CHOSEN = 'set_device(int(__import__("os").environ["LOCAL_RANK"]))'


@check(severity=ERROR, area="training")
def launch_device_not_chosen(training: TrainingLaunch) -> Iterator[Finding]:
    """A program with several ranks on a host gives each rank its own device.

    ## Why it matters
    torchrun does not choose a device: without `set_device(local_rank)` all ranks of a host use device 0. NCCL stops
    with "Duplicate GPU detected", HCCL with EI0001 or out of memory.

    ## What to do
    {edit} The program needs `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))`, with torch_npu
    `torch.npu.set_device`, before {where}.

    ## Source
    PyTorch, DistributedDataParallel, "ensuring that each process exclusively works on a single GPU"
    (https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html).
    """
    yield from apply_rules(training, script_rules=(_own_device,))


def _own_device(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = [mark for mark in script.all("init") if mark.text in ("nccl", "hccl", "cuda:nccl", "npu:hccl")]
    if not marks or not script.has("ddp"):
        raise NotGiven("init")
    fixed = script.all("fixed_device")
    if script.has("device") and not (fixed and {mark.text for mark in script.all("device")} == {"set_device"}):
        return
    ranks = job.launch.get("ranks_per_node")
    if ranks is None:
        raise NotGiven("ranks_per_node")
    if script.opaque or not isinstance(ranks.value, int):
        reason = filled("the device may be chosen in {0}", script.opaque) if script.opaque else str(ranks)
        raise NotDecided(filled("{0} ({1})", reason, marks[0].where))
    if fixed:
        launcher = job.launch.get("launcher")
        if launcher is None or launcher.value != "torchrun":
            raise NotGiven("launcher")  # others may show each rank one device alone, as device 0
        if ranks.value > 1:
            yield Finding(
                "all {ranks} ranks of a host use device {device}: {where} names it",
                ranks=ranks.value,
                where=fixed[0].where,
                device=int(fixed[0].text),
                observed=f"set_device({fixed[0].text})",
                expected="set_device with the local rank",
                edit=correction(fixed[0].where, rf"set_device\({fixed[0].text}\)", _CHOSEN),
            )
    elif ranks.value > 1:
        yield Finding(
            "all {ranks} ranks of a host use device 0: nothing chooses a device before {where}",
            ranks=ranks.value,
            where=marks[0].where,
            observed="no set_device, and LOCAL_RANK is not used",
            expected="set_device with the local rank",
            edit=correction(
                marks[0].where,
                r"^(\s*)",
                rf'\1__import__("torch").{"npu" if "hccl" in marks[0].text else "cuda"}.{_CHOSEN}\n\1',
            ),
        )
