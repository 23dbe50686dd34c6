from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingJob, TrainingLaunch, TrainingScript, apply_rules


@check(severity=WARNING, area="training")
def launch_scale_outdated(training: TrainingLaunch) -> Iterator[Finding]:
    """A batch size or learning rate that is scaled by a number of devices is scaled by that of this launch.

    ## Why it matters
    A program that was written for 8 devices and is started on 2 still multiplies the learning rate by 8, or divides
    the batch by it. The global batch is a quarter of what was meant, or the learning rate four times too large.

    ## What to do
    At {where}: take the number from the launcher, `dist.get_world_size()` or `get_group_size()`. From 8 to 2 devices,
    keep the global batch with four times the accumulation, or divide the learning rate by four.

    ## Source
    "Accurate, Large Minibatch SGD", linear scaling rule (https://arxiv.org/abs/1706.02677).
    """
    yield from apply_rules(training, script_rules=(_scaled,))


def _scaled(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    marks = script.all("scale")
    world = job.launch.get("world_size")
    if not marks or world is None:
        raise NotGiven("scale")
    if not isinstance(world.value, int):
        raise NotDecided(filled("{0}, and {1} scales by a constant", world, marks[0].where))
    ranks = job.launch.get("ranks_per_node")
    for mark in marks:
        name, _, number = mark.text.partition(" ")
        if int(number) not in (world.value, ranks.value if ranks else None):
            yield Finding(
                "{name} at {where} is not the number of ranks, and scales the batch or the learning rate",
                name=name,
                where=mark.where,
                observed=number,
                expected=filled("{0}, from {1}", world.value, world),
            )
