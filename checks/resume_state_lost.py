from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.analysis.values.resumed import resume_findings
from doctor.engine.watch_summary import WatchResult


@check(severity=ERROR, area="loss")
def resume_state_lost(watch: WatchResult) -> Iterator[Finding]:
    """A training that goes on from a checkpoint begins with all that was there when it was saved.

    ## Why it matters
    A resume that loses a part ends by no error. New moments and a learning rate that warms up again move the
    parameters for thousands of steps. Data that begin again are learned twice while the rest is never seen. Ranks that
    share a generator draw the same masks. The loss shows little of it, or shows it days later.

    ## What to do
    Save and load the part that is named: `optimizer.state_dict()`, `scheduler.state_dict()`, `scaler.state_dict()`, or
    the epoch and the batch of the sampler. Save the generators of each rank in a file of its own. Load the scheduler
    after the optimizer, and both before the first step. Where a new optimizer or other data are meant, as in
    fine-tuning, waive this check for that job.

    ## Source
    `doctor watch` records digests of all parts when a checkpoint is saved, and when a training begins.
    `doctor explain watch` says what is compared, what is an error and what a warning, and what cannot be seen.
    """
    if watch.resumed is None:
        raise Skip("the training goes on from no checkpoint that doctor watch has seen being saved")
    yield from resume_findings(watch)
