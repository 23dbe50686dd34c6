from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.engine.loss_rules import loss_findings
from doctor.engine.watch_summary import WatchResult


@check(severity=ERROR, area="loss")
def loss_silent(watch: WatchResult) -> Iterator[Finding]:
    """The program goes on printing its loss.

    ## Why it matters
    A job that prints nothing more hangs, or has ended without a word: no message is sent, and its hosts stay taken.

    ## What to do
    Look at what its ranks do, without stopping them: `doctor watch --attach`. If they write a checkpoint or evaluate,
    allow for it with `--silent S`, more than the longest of them takes.

    ## Source
    No loss for 10 minutes (`--silent`), and for five times the longest wait so far. Not said of programs whose ranks
    are watched: there what the ranks do shows a hang.
    """
    yield from loss_findings(watch, "loss-silent")
