from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_update_missing(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    r"""Every parameter changes in training.

    ## Why it matters
    A parameter that has a gradient and does not change is not trained. Where others are, the loss still falls, only not
    as far as it could.

    ## What to do
    In the folder of the program:

    - Learning rate: `grep -rnE '\blr\b|scheduler' --include='*.py' .` finds where it is set. Give {who} the rate of the
      other ranks, above 0. Look for a value that depends on the rank, a scheduler that was not loaded or has ended.
    - All parameters: `grep -rnE '\.step\(|GradScaler' --include='*.py' .` finds the calls that update. Look for
      `optimizer.step()` that is not called, and for a gradient scaler that skips every step.
    - One step: `grep -rnE '\.step\(|GradScaler' --include='*.py' .` finds the calls that update. On {who} a condition
      around `optimizer.step()`, or a gradient scaler of its own, left it out: have every rank call it in every step.
    - Not held: give the optimizer all parameters, `model.parameters()`, and build it after the model was moved or
      sharded.
    - Some parameters: is `requires_grad` off, or the tensor used under `no_grad` or after `detach()`?
    - Frozen: `grep -rnE 'requires_grad|\.grad = None' --include='*.py' .` finds what leaves tensors out. Train the same
      tensors on all ranks.

    ## Source
    Every rank reports how far each of its tensors moved over all steps; the reference run's moved. Not at all means
    exactly 0, so that no other fault has this symptom.
    """
    yield from findings("smoke-update-missing", run, training)
