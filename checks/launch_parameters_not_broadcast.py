from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingJob, TrainingLaunch, TrainingScript, apply_rules


@check(severity=WARNING, area="training")
def launch_parameters_not_broadcast(training: TrainingLaunch) -> Iterator[Finding]:
    """With MindSpore's data_parallel mode, all ranks start from the same parameters.

    ## Why it matters
    `parameter_broadcast` is False by default, and each rank initialises its model from its own random numbers. Without
    the broadcast and without a common seed, the ranks train different models and average their gradients.

    ## What to do
    At {where}: add `parameter_broadcast=True`, or call `mindspore.set_seed(1)` before the model is made.

    ## Source
    MindSpore, set_auto_parallel_context, parameter_broadcast
    (https://www.mindspore.cn/docs/en/r2.4.10/api_python/mindspore/mindspore.set_auto_parallel_context.html).
    """
    yield from apply_rules(training, script_rules=(_same_start,))


def _same_start(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = script.all("parallel_mode")
    if not marks or marks[-1].undecided:
        raise NotGiven("parallel_mode")
    if marks[-1].text.lower() != "data_parallel" or script.has("seed"):
        return
    broadcast = script.all("broadcast")
    if broadcast and (broadcast[-1].undecided or broadcast[-1].text == "True"):
        return
    if script.has("settings") or script.opaque:
        module = script.opaque or "the keywords of a variable"
        raise NotDecided(filled("seed or parameter_broadcast may be set in {0} ({1})", module, marks[-1].where))
    yield Finding(
        "each rank may start from other parameters: {where} sets data_parallel without parameter_broadcast or a seed",
        where=marks[-1].where,
        observed="parameter_broadcast=False, and no set_seed",
        expected="parameter_broadcast=True, or set_seed",
    )
