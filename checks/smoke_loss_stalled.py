from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.facts.smoke.further_stages import SmokeLearning
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import analyze_training
from doctor.smoke.numerics.learned import (
    LOSS_OF_NOTHING,
    LOSS_OF_PLACE,
    MARGIN,
    MIN_STEPS,
    false_alarm_rate,
    final_level,
    mean_losses,
    stall_reason,
)

STALL_TEXTS = {
    "nothing": ("it learns nothing; the loss is still at ln 64, that of a uniform guess", LOSS_OF_NOTHING - MARGIN),
    "rose": ("the loss rises; each step makes the model worse", LOSS_OF_NOTHING - MARGIN),
    "place": ("the loss stays at ln 7; it learns words by position only, and attention adds nothing", LOSS_OF_PLACE),
}


@check(severity=ERROR, area="smoke")
def smoke_loss_stalled(
    run: SmokeRun, learning: PerHost[SmokeLearning], training: PerHost[SmokeTraining] | None
) -> Iterator[Finding]:
    r"""The loss falls: the model learns what the data contain.

    ## Why it matters
    A job whose loss does not fall is useless, and the slope does not show it. The first losses of any model fall a
    little, while it only learns how often each word occurs. The smoke run's data have known levels instead.

    ## What to do
    Read the other smoke checks that failed: they name what to fix. If there are none, the loop itself does not learn.
    `grep -rnE '\blr\b|zero_grad|backward\(|\.step\(' --include='*.py' .` in the folder of the program finds its places.
    Each step needs `optimizer.zero_grad()`, `loss.backward()` and `optimizer.step()`, in this order. The learning rate
    must be above 0 ({rate} in this run), and the labels must belong to their rows. The loss must fall where the output
    is right.

    ## Source
    Mean of the last three losses after 10 steps of Adam against ln 64 - 0.6, after 40 steps against ln 7 too. In 1000
    trainings of each of seven kinds (learning, learning slowly, frozen, too slow, labels at random, no context,
    ascending) it made no mistake, so it is wrong in fewer than 0.3 % of runs (95 %).

    Of a watched program (`doctor watch`), which has no such levels: 50 losses that are equal to the last digit; or, a
    warning, a loss that after 300 steps has certainly fallen by less than 5 % since the first 50.
    """
    step_losses = mean_losses((event.step, event.loss) for fact in learning.values() for event in fact.steps)
    losses = [loss for loss in step_losses if loss is not None]
    if len(losses) < len(step_losses):
        raise Unreadable("the loss is not a finite number", "smoke-not-finite")
    if len(losses) < min(MIN_STEPS, run.plan.learn_steps) and not run.watched:
        raise Unreadable(filled("the ranks reported the losses of {0} of {1} steps", len(losses), run.plan.learn_steps))
    if len(losses) < MIN_STEPS:
        raise Skip(filled("{0} steps are too few; {1} are needed", len(losses), MIN_STEPS))
    reason = stall_reason(losses)
    if not reason:
        return
    causes = analyze_training(run.plan, training).causes if training else ()
    text, expected = STALL_TEXTS[reason]
    finding = Finding(
        joined("", ("the loss is {observed} after {steps} steps, expected below {expected}: ", text)),
        observed=round(final_level(losses), 3),
        expected=round(expected, 3),
        steps=len(losses),
        reason=reason,
        rate=0.02,
        mistaken=false_alarm_rate(),
    )
    yield finding.because_of(*(cause.check for cause in causes))
