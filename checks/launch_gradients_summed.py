from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingJob, TrainingLaunch, TrainingScript, apply_rules


@check(severity=WARNING, area="training")
def launch_gradients_summed(training: TrainingLaunch) -> Iterator[Finding]:
    """With MindSpore's data_parallel mode, the gradients of the ranks are averaged, not summed.

    ## Why it matters
    `gradients_mean` is False by default: gradients are summed over the ranks. That is a learning rate that grows with
    every rank, and a training that diverges on 8 NPUs with the settings that were right on one. A program that divides
    the loss or the learning rate itself may mean it; set it to False in words then.

    ## What to do
    At {where}: `set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)`. Before 1.1 it was
    `mirror_mean`.

    ## Source
    MindSpore, set_auto_parallel_context, gradients_mean
    (https://www.mindspore.cn/docs/en/r2.4.10/api_python/mindspore/mindspore.set_auto_parallel_context.html); tutorial
    "Data Parallel" (https://www.mindspore.cn/docs/en/r2.5.0/model_train/parallel/data_parallel.html).
    """
    yield from apply_rules(training, script_rules=(_averaged,))


def _averaged(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = script.all("parallel_mode")
    if not marks or marks[-1].undecided:
        raise NotGiven("parallel_mode")
    if marks[-1].text.lower() != "data_parallel" or script.has("gradients_mean"):
        return
    if script.has("settings"):
        raise NotDecided(
            filled("set_auto_parallel_context has {0} ({1})", script.all("settings")[0].undecided, marks[-1].where)
        )
    if script.opaque:
        raise NotDecided(filled("gradients_mean may be set in {0}, which {1} imports", script.opaque, script.path))
    yield Finding(
        "the gradients are summed over the ranks: {where} sets data_parallel without gradients_mean",
        where=marks[-1].where,
        observed="gradients_mean=False, the default",
        expected="gradients_mean=True",
    )
