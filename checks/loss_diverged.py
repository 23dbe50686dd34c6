from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.loss_rules import loss_findings
from doctor.engine.watch_summary import WatchResult


@check(severity=ERROR, area="loss")
def loss_diverged(watch: WatchResult) -> Iterator[Finding]:
    """The loss does not rise above the level that it had reached, to stay there.

    ## Why it matters
    When the loss leaves its level and does not come back, the training learns nothing more: each later checkpoint is
    worse than the last good one.

    ## What to do
    Stop the job, go back to a checkpoint from before step {step}, and lower the learning rate, lengthen the warm-up,
    or clip the gradient. If the same step diverges again, look at the batches that it reads; if it diverges at another
    one, compare the ranks' values: `doctor watch --data 10,100 -- COMMAND`.

    ## Source
    Seven of eight of the last 64 losses lie half of the best level, and four of their deviations, above it; or they are
    three times as high, and eight deviations of the best level above it, as in a loss that still rises. The level is
    the lowest median of 64 losses so far, a deviation 1.4826 times the median absolute one. `doctor explain watch-log`
    says how often it was wrong.
    """
    yield from loss_findings(watch, "loss-diverged")
