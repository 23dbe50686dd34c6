"""The state of a loss and its verdicts, each in one sentence, while it is followed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.loss_rules import CHECK_OF, is_warning, verdict_text
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.engine.watch_summary import MIN_JUDGED, LossVerdict
from doctor.watch.loss.log_watch import LogWatch


def verdict_line(verdict: LossVerdict) -> str:
    """Such as ``error: the loss is NaN since step 15 (smoke-not-finite)``, in the language of this process."""
    severity = "warning" if is_warning(verdict) else "error"
    text, check = localized_filled(verdict_text(verdict)), CHECK_OF[verdict.kind]
    return phrase("{severity}: {text} ({check})", severity=localized(severity), text=text, check=check)


def headline(watch: LogWatch, verdicts: Sequence[LossVerdict]) -> str:
    """How many losses were read, and what is wrong so far."""
    series = watch.series
    if not series:
        return "Undecidable: found no loss in the log; describe its format with --loss-regex."
    ranks = filled(" of {0}", count_noun(len(series), "rank")) if len(series) > 1 else ""
    counted = f"{count_noun(watch.losses, 'loss', 'losses')}{ranks}"
    errors = sum(not is_warning(verdict) for verdict in verdicts)
    if errors:
        return filled("{0} in {1}.", count_noun(errors, "error"), counted)
    if not watch.decided:
        return filled("Undecidable: {0}; a verdict needs {1} of one rank.", counted, MIN_JUDGED)
    if verdicts:
        return filled("{0} in {1}.", count_noun(len(verdicts), "warning"), counted)
    return filled("No error in {0}.", counted)
