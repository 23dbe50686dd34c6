from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.texts import enumerated
from doctor.job.training import (
    NotDecided,
    NotGiven,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    View,
    apply_rules,
)

MODES = ("stand_alone", "data_parallel", "hybrid_parallel", "semi_auto_parallel", "auto_parallel")
SHARDED = ("semi_auto_parallel", "auto_parallel")


@check(severity=ERROR, area="training")
def launch_parallel_mode_refused(training: TrainingLaunch) -> Iterator[Finding]:
    """MindSpore's parallel mode exists, fits its execution mode, and its strategies fit the number of devices.

    ## Why it matters
    PyNative mode runs stand_alone and data_parallel only; semi_auto_parallel and auto_parallel divide a graph, and
    there is none. A strategy of `shard` needs as many devices as the product of its numbers, and powers of two where
    the number of devices is one. The pipeline's stages must divide the devices.

    ## What to do
    Correct {where}: it has {observed}, and needs {expected}.

    ## Source
    MindSpore, set_auto_parallel_context, "the pynative mode only supports the stand_alone and data_parallel mode"
    (https://www.mindspore.cn/docs/en/r2.4.10/api_python/mindspore/mindspore.set_auto_parallel_context.html);
    operator_info.cc, "the value of strategy must be the power of 2"
    (https://gitee.com/mindspore/mindspore/blob/master/mindspore/ccsrc/frontend/parallel/ops_info/operator_info.cc).
    """
    yield from apply_rules(training, _mindformers, script_rules=(_exists, _fits_execution, _strategies, _devices))


def _mindformers(view: View) -> Iterator[Finding]:
    """``context.mode`` 1 is PyNative; ``parallel_mode`` 1 is semi-auto, 2 auto."""
    if view.framework != "mindformers" or not view.flag("use_parallel"):
        raise NotGiven("parallel_mode")
    mode, parallel_mode = view.need("mode"), view.need("parallel_mode")
    if mode.value == 1 and str(parallel_mode.value).lower() in ("1", "2", *SHARDED):
        yield Finding(
            "{where} sets a parallel mode that PyNative mode does not run",
            where=view.place("parallel_mode"),
            observed=view.listed("mode", "parallel_mode"),
            expected="mode 0 (graph), or parallel_mode 0 (data parallel)",
        )


def _mode(script: TrainingScript) -> tuple[str, str]:
    """The parallel mode in lower case, and its place. Raises: NotGiven, NotDecided."""
    marks = script.all("parallel_mode")
    if not marks:
        raise NotGiven("parallel_mode")
    if len({mark.text.lower() for mark in marks}) > 1:
        raise NotDecided(filled("several parallel modes ({0} and {1})", marks[0].where, marks[-1].where))
    if marks[-1].undecided:
        raise NotDecided(filled("parallel_mode {0} ({1})", marks[-1].undecided, marks[-1].where))
    return marks[-1].text.lower(), marks[-1].where


def _exists(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    mode, where = _mode(script)
    if mode not in MODES:
        yield Finding("{where} names no parallel mode", where=where, observed=mode, expected=", ".join(MODES))


def _fits_execution(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    mode, where = _mode(script)
    marks = script.all("mode")
    if not marks or mode not in SHARDED:
        raise NotGiven("mode")
    if len({mark.text for mark in marks}) > 1 or marks[-1].undecided:
        raise NotDecided(filled("mode {0} ({1})", marks[-1].undecided or "is set twice", marks[-1].where))
    if marks[-1].text in ("PYNATIVE_MODE", "1") and not script.has("strategy"):
        yield Finding(
            "{where} sets a parallel mode that PyNative mode does not run",
            where=where,
            observed=filled("{0} with {1} ({2})", mode, marks[-1].text, marks[-1].where),
            expected="GRAPH_MODE, or data_parallel",
        )


def _devices_of(job: TrainingJob) -> int:
    setting = job.launch.get("world_size")
    if setting is None:
        raise NotGiven("world_size")
    if not isinstance(setting.value, int):
        raise NotDecided(str(setting))
    return setting.value


def _stages(script: TrainingScript) -> int:
    marks = script.all("stages")
    if marks and not marks[-1].text.isdecimal():
        raise NotDecided(filled("pipeline_stages {0} ({1})", marks[-1].undecided, marks[-1].where))
    return max(1, int(marks[-1].text)) if marks else 1


def _strategies(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    mode, _ = _mode(script)
    if not script.has("strategy") or mode not in SHARDED:
        raise NotGiven("strategy")
    devices = _devices_of(job)
    stage = devices // _stages(script)
    for mark in script.all("strategy"):
        for number in map(int, mark.text.split()):
            if number < 1 or number > stage:
                yield Finding(
                    "a strategy at {where} needs more devices than there are",
                    where=mark.where,
                    observed=number,
                    expected=filled("at most {0} devices of a stage", stage),
                )
            elif devices & (devices - 1) == 0 and number & (number - 1):
                yield Finding(
                    "a strategy at {where} is no power of two",
                    where=mark.where,
                    observed=number,
                    expected="1, 2, 4, 8, ...",
                )


def _divisors(number: int) -> list[int]:
    """All of a small number, the first sixteen of a large one."""
    return [divisor for divisor in range(1, min(number, 4096) + 1) if number % divisor == 0][:16]


def _devices(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    if not script.has("device_num", "stages"):
        raise NotGiven("device_num")
    devices, stages = _devices_of(job), _stages(script)
    for mark in script.all("device_num"):
        if mark.text.isdecimal() and int(mark.text) != devices:
            yield Finding(
                "the device_num at {where} is not the number of ranks",
                where=mark.where,
                observed=mark.text,
                expected=devices,
            )
    if devices % stages:
        mark = script.all("stages")[-1]
        yield Finding(
            "the pipeline_stages at {where} do not divide the ranks",
            where=mark.where,
            observed=stages,
            expected=enumerated([str(number) for number in _divisors(devices)], " or "),
        )
