from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotDecided, NotGiven, TrainingJob, TrainingLaunch, TrainingScript, apply_rules


@check(severity=WARNING, area="training")
def launch_epoch_not_set(training: TrainingLaunch) -> Iterator[Finding]:
    """A DistributedSampler that shuffles gets the number of each epoch.

    ## Why it matters
    The sampler derives its order from the seed and the epoch. Without `set_epoch`, every epoch has the same order and
    every rank the same samples again.

    ## What to do
    Call `sampler.set_epoch(epoch)` at the start of each epoch; the sampler is made at {where}.

    ## Source
    PyTorch, DistributedSampler, "calling the set_epoch() method at the beginning of each epoch is necessary"
    (https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler).
    """
    yield from apply_rules(training, script_rules=(_epochs,))


def _epochs(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
    samplers = script.all("sampler")
    if not samplers:
        raise NotGiven("sampler")
    if script.has("set_epoch"):
        return
    if script.opaque:
        raise NotDecided(filled("set_epoch may be called in {0}, which {1} imports", script.opaque, script.path))
    if not script.has("epochs"):
        raise NotGiven("epochs")  # the data are read once
    yield Finding(
        "every epoch has the same order: no set_epoch for the DistributedSampler at {where}",
        where=samplers[0].where,
        observed="no call of set_epoch",
        expected="sampler.set_epoch(epoch) in the loop over epochs",
    )
