from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotGiven, TrainingLaunch, View, apply_rules


@check(severity=WARNING, area="training")
def launch_workers_not_joined(training: TrainingLaunch) -> Iterator[Finding]:
    """msrun waits for its workers.

    ## Why it matters
    Without `--join=True` msrun starts the workers in the background and ends with exit code 0. A scheduler then takes
    the job for done and ends it, and a worker that fails goes unnoticed.

    ## What to do
    At {where}: `msrun --join=True ...`, always in a job script.

    ## Source
    MindSpore, msrun, `--join` (https://www.mindspore.cn/tutorials/en/stable/parallel/msrun_launcher.html).
    """
    yield from apply_rules(training, _joined)


def _joined(view: View) -> Iterator[Finding]:
    if view.text("launcher") != "msrun":
        raise NotGiven("launcher")
    if view.need("joined").value is False:
        yield Finding(
            "msrun at {where} does not wait for its workers",
            where=view.place("joined"),
            observed=filled("no {0}", "--join=True"),
            expected="--join=True",
        )
