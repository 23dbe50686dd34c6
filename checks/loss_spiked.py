from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.engine.loss_rules import loss_findings
from doctor.engine.watch_summary import WatchResult


@check(severity=WARNING, area="loss")
def loss_spiked(watch: WatchResult) -> Iterator[Finding]:
    """The loss does not jump from one step to the next.

    ## Why it matters
    One bad batch moves one loss. A jump that several steps share comes from a gradient that has spoilt the parameters.
    The training may come back, and may have lost what it had learned for some of its data.

    ## What to do
    `doctor watch --data {step} -- COMMAND` compares the batches of that step on all ranks; look for documents that
    repeat, empty rows, labels of another form. If the loss does not come back, continue from a checkpoint before step
    {step} and leave these batches out, or lower the learning rate.

    ## Source
    The median of eight losses lies a third of the level, and six deviations, above that of the 64 before.
    `doctor explain watch-log` says how often it was wrong.
    """
    yield from loss_findings(watch, "loss-spiked")
