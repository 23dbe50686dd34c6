from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import (
    NotDecided,
    NotGiven,
    Setting,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    View,
    apply_rules,
)

CONNECT, EXECUTE = "HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT"
CONNECT_EXTRA_S = 20
"""HCCL waits this much longer than HCCL_CONNECT_TIMEOUT says."""


@check(severity=WARNING, area="training")
def launch_group_timeout_disordered(training: TrainingLaunch) -> Iterator[Finding]:
    """The timeout of the process group is longer than those of HCCL, and shorter than the job's time limit.

    ## Why it matters
    When a rank hangs, the first timeout that ends decides what the logs say. If the process group's is shorter than
    HCCL's, the watchdog ends the process, and the plog that names the rank is not written. If the scheduler's limit is
    shorter, the job is killed without any message, after all its time was spent waiting.

    ## What to do
    Correct {where}: it has {observed}, and needs a timeout {expected}. Half an hour, PyTorch's default, fits most jobs
    without HCCL; with it, the timeout must be above HCCL_CONNECT_TIMEOUT + 20 s and HCCL_EXEC_TIMEOUT.

    ## Source
    torch_npu, ProcessGroupHCCL.cpp: "The watchdog timeout ... is less than or equal to HCCL execution timeout! The plog
    may not be recorded"; HCCL documentation, HCCL_CONNECT_TIMEOUT and HCCL_EXEC_TIMEOUT. The timeout is that of
    init_process_group in PyTorch, `--distributed-timeout-minutes` in Megatron-LM, `ddp_timeout` in Transformers,
    InitProcessGroupKwargs in Accelerate, init_distributed in DeepSpeed, `comm.train_timeout_seconds` in torchtitan.
    """
    yield from apply_rules(training, _configured, script_rules=(_written,))


def _configured(view: View) -> Iterator[Finding]:
    """The timeout of an option or a file."""
    name, factor = ("timeout_minutes", 60) if view.has("timeout_minutes") else ("timeout_seconds", 1)
    setting = view.need(name)
    if isinstance(setting.value, bool) or not isinstance(setting.value, (int, float)) or setting.value <= 0:
        raise NotDecided(filled("{0}, no positive number", setting))
    yield from _compare(view.job, setting.value * factor, str(setting), setting.where)


def _written(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    """The timeout of a program."""
    marks = script.all("group_timeout")
    if not marks:
        raise NotGiven("group_timeout")
    for mark in marks:
        if mark.text:
            yield from _compare(job, float(mark.text), f"{float(mark.text):g} s", mark.where)
    undecided = next((mark for mark in marks if not mark.text), None)
    if undecided and _limits(job):
        raise NotDecided(f"timeout={undecided.undecided} ({undecided.where})")


def _compare(job: TrainingJob, seconds: float, written: str, where: str) -> Iterator[Finding]:
    limits = _limits(job)
    if not limits:
        raise NotGiven("time_limit")
    for name, setting in limits.items():
        if not isinstance(setting.value, (int, float)):
            raise NotDecided(str(setting))
        if name == "time_limit" and seconds >= setting.value:
            yield Finding(
                "the job ends before the process group's timeout, which {where} sets",
                where=where,
                observed=written,
                expected=filled("below {0} s ({1})", f"{setting.value:.0f}", setting.where),
            )
        least = setting.value + (CONNECT_EXTRA_S if name == CONNECT else 0)
        if name != "time_limit" and setting.value > 0 and seconds <= least:
            yield Finding(
                "the process group's timeout, which {where} sets, ends before {variable}",
                where=where,
                variable=name,
                observed=written,
                expected=filled("above {0} s ({1})", f"{least:g}", setting),
            )


def _limits(job: TrainingJob) -> dict[str, Setting]:
    """What the timeout is compared with."""
    return {name: job.launch[name] for name in ("time_limit", CONNECT, EXECUTE) if name in job.launch}
