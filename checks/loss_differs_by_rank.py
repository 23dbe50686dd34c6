from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.loss_rules import loss_findings
from doctor.engine.watch_summary import WatchResult


@check(severity=ERROR, area="loss")
def loss_differs_by_rank(watch: WatchResult) -> Iterator[Finding]:
    """Ranks that printed the same loss go on doing so.

    ## Why it matters
    Ranks that hold one model together, or that print a reduced loss, have one loss. Once they differ, they work on
    other data, other masks or other parameters, and what the job learns is no one's model. No error is raised.

    ## What to do
    Find what differs first: `doctor watch --data 10,100 -- COMMAND` compares batches, masks, gradients and parameters
    of all ranks. Then compare seeds, library versions and devices of the rank that is named with those of the others.

    ## Source
    The ranks printed the same loss, to its last digit, on 20 steps, and then three times in a row not, by more than
    one part in 10,000. With `--same-loss` no 20 steps are needed. Data-parallel ranks that print the loss of their own
    batch differ from the start, and nothing is said of them.
    """
    yield from loss_findings(watch, "loss-differs-by-rank")
