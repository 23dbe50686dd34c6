from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_update_missing(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    r"""Every parameter changes in training.

    ## Why it matters
    A parameter that has a gradient and does not change is not trained. Where others are, the loss still falls, only not
    as far as it could.

    ## What to do
    - Learning rate: `grep -rnE '\blr\b|scheduler' --include='*.py' .` in the folder of the program finds where it is
      set. Look for a value that one rank alone has, a warm-up that begins at 0, a scheduler that has ended.
    - All parameters: `grep -rnE 'scaler|optimizer|scheduler' --include='*.py' .` in the folder of the program: a
      learning rate of 0, a gradient scaler that skips every step, `optimizer.step()` that is not called.
    - Some parameters: are they in the optimizer's parameter groups? Was the optimizer built before the model was moved
      or sharded? Is `requires_grad` off, or the tensor used under `no_grad` or after `detach()`?

    ## Source
    Every rank reports how far each of its tensors moved over all steps; the reference run's moved. Not at all means
    exactly 0, so that no other fault has this symptom.
    """
    yield from findings("smoke-update-missing", run, training)
