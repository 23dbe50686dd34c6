from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_update_missing(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """Every parameter changes in training.

    ## Why it matters
    A tensor that has a gradient and stays as it was is frozen by mistake: the rest of the model learns around it, and
    the loss falls, only not as far as it could.

    ## What to do
    - Learning rate: `grep -rnE 'lr|scheduler' --include='*.py' .` in the folder of the program finds where it is set: a
      rank of its own, a warm-up that begins at 0, a scheduler that ended.
    - All parameters: `grep -rnE 'scaler|optimizer|scheduler' --include='*.py' .` in the folder of the program: a
      learning rate of 0, a gradient scaler that skips every step, `optimizer.step()` that is not called.
    - Some parameters: are they in the optimizer's parameter groups? Was the optimizer built before the model was moved
      or sharded? Is `requires_grad` off, or the tensor used under `no_grad` or after `detach()`?

    ## Source
    Every rank reports how far each of its tensors moved over all steps; the reference run's moved. Not at all means
    exactly 0, so that no other fault has this symptom.
    """
    yield from findings("smoke-update-missing", run, training)
