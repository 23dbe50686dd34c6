"""What the logs of a training tell of its loss, line by line: its series by rank, and the verdicts, in words, too."""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from doctor.diagnose.read.file_names import read_names
from doctor.engine.language import localized, localized_filled, phrase
from doctor.engine.loss_rules import CHECK_OF, is_warning, verdict_text
from doctor.engine.sanitize import count_noun, number_ranges
from doctor.engine.texts import filled
from doctor.engine.watch_summary import LOSS_RULES, MIN_COMPARED, MIN_JUDGED, LossCurve, LossRule, LossVerdict
from doctor.watch.loss.loss_lines import LossLine, read_by_pattern, read_loss
from doctor.watch.loss.loss_series import CONSTANT_RUN, LossSeries, not_finite_text
from doctor.watch.loss.rank_agreement import RankAgreement

MAX_RANKS = 4096
MAX_NAMES = 4
"""Losses of different names in one rank's log."""
SILENT_SECONDS = 600.0
"""A checkpoint, an evaluation or a compilation may take as long."""
SILENT_FACTOR = 5.0
"""Of the longest wait so far."""
_LOSS_IN_CHINESE = "损失".encode()
MOST_HEARTBEATS = 256
HEARTBEAT = re.compile(
    rb"Cluster Exception Location ?\[|Heartbeat Lost Occurred|crimer rank \[[^\]\n]{1,80}\] status\["
)
"""HCCL's heartbeat names a device. Source: hicann/hccl, docs/zh/user_guide/fault_diagnosis/task_exec_stage.md."""
PROBE = "probe"
"""The name of a loss that the program states by `doctor.watch.probe.loss`: it counts before what lines tell."""
AT_END: LossRule = "ends-not-finite"
MAX_PATTERN = 500
MAX_UNBOUNDED = 2
"""Repetitions without a bound in one pattern. With two, a line of n characters takes n³ steps at the most."""
MAX_REPEAT = 64
"""Above this, a bounded repetition counts as one without a bound."""
PATTERN_LINE = 512
"""Characters of a line that a user's pattern sees: 512³ / 6 steps are some tenths of a second, in the worst case."""


class PatternRefusedError(Exception):
    """One line: what is wrong with the pattern, and what is expected."""


def judge(
    series: Mapping[int | None, LossSeries], agreement: RankAgreement | None = None, is_over: bool = True
) -> list[LossVerdict]:
    """All verdicts on the series, by rank, in their order; a rank of None is that of logs that name none.

    ``is_over``: the next loss is not waited for, which may show that the last one was a step left out.
    """
    verdicts: list[LossVerdict] = []
    for kind in LOSS_RULES:
        ranks = [rank for rank, entry in series.items() if _holds(kind, entry)] if is_over or kind != AT_END else []
        if ranks:
            verdicts.append(_verdict(kind, ranks, series))
    if agreement is not None and agreement.differing:
        verdicts.append(_differing(agreement))
    has = {verdict.kind for verdict in verdicts}
    # What is not finite has no level; what is constant has not fallen either.
    hidden = {"stalled"} if has & {"constant", "diverged", "not-finite"} else set()
    hidden |= {"spiked"} if has & {"diverged", "not-finite"} else set()
    hidden |= {AT_END} if "not-finite" in has else set()
    return sorted(
        (entry for entry in verdicts if entry.kind not in hidden), key=lambda entry: LOSS_RULES.index(entry.kind)
    )


def _holds(kind: LossRule, series: LossSeries) -> bool:
    if kind == "not-finite":
        return series.not_finite_step is not None
    if kind == AT_END:
        return series.ends_not_finite
    if kind == "constant":
        return series.constant_step is not None
    if series.takes_negative_values:
        return False
    if kind == "diverged":
        return series.diverged is not None
    if kind == "stalled":
        return series.stalled
    return kind == "spiked" and bool(series.spikes)


def _verdict(kind: LossRule, ranks: list[int | None], series: Mapping[int | None, LossSeries]) -> LossVerdict:
    first = min((series[rank] for rank in ranks), key=lambda entry: _step(kind, entry))
    step = _step(kind, first)
    named = tuple(sorted(rank for rank in ranks if rank is not None and _step(kind, series[rank]) == step))
    every = len(ranks) == len(series) and (len(named) in (0, len(series)) or len(series) == 1)
    of_whom = "" if every or not named else filled(" of {0}", _who(named))
    values = {"of_whom": of_whom, "step": step, **_VALUES[kind](first)}
    last = first.last
    is_over = kind == "not-finite" and last is not None and math.isfinite(last.value)
    return LossVerdict(kind, () if every else named, step, values, is_over)


def _step(kind: LossRule, series: LossSeries) -> int:
    steps = {
        "not-finite": series.not_finite_step,
        AT_END: series.last_step,
        "constant": series.constant_step,
        "diverged": series.diverged.step if series.diverged else None,
        "spiked": series.spikes[0].step if series.spikes else None,
        "stalled": series.first_step,
    }
    return steps.get(kind) or 0


Values = dict[str, str | int | float]


def _ends_not_finite(series: LossSeries) -> Values:
    assert series.last
    return {"number": not_finite_text(series.last.value)}


def _diverged(series: LossSeries) -> Values:
    rise = series.diverged
    assert rise
    return {"before": f"{rise.before:.4g}", "after": f"{rise.after:.4g}"}


def _spiked(series: LossSeries) -> Values:
    rise = series.spikes[0]
    more = filled("; {0} times in all", series.spike_count) if series.spike_count > 1 else ""
    return {"before": f"{rise.before:.4g}", "after": f"{rise.after:.4g}", "more": more}


def _stalled(series: LossSeries) -> Values:
    fallen = series.fall()
    share = max(fallen[1], 0.0) if fallen else 0.0
    start = sum(series.first) / len(series.first)
    return {"rate": "its own", "share": f"{share:.1%}", "count": series.lines, "before": f"{start:.4g}"}


_VALUES: Mapping[LossRule, Callable[[LossSeries], Values]] = {
    "not-finite": lambda series: {"number": series.not_finite_text},
    AT_END: _ends_not_finite,
    "constant": lambda _: {"rate": "its own", "count": CONSTANT_RUN},
    "diverged": _diverged,
    "spiked": _spiked,
    "stalled": _stalled,
}


def _differing(agreement: RankAgreement) -> LossVerdict:
    difference = agreement.differing
    assert difference
    examples = ", ".join(
        filled("rank {0}: {1}", rank, f"{value:.6g}") for rank, value in sorted(difference.values.items())[:4]
    )
    steps = count_noun(agreement.equal_steps, "step")
    before = filled(" after {0} on which it was equal", steps) if agreement.equal_steps else ""
    others = filled("; the others agree without {0}", _who(difference.outliers)) if difference.outliers else ""
    values: Values = {"step": difference.step, "before": before, "examples": examples, "others": others}
    return LossVerdict("ranks-differ", difference.outliers, difference.step, values)


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {number_ranges(ranks)}"


class LossOptions(msgspec.Struct, frozen=True):
    """Options of `LogWatch`."""

    pattern: re.Pattern[str] | None = None
    """A user's own, instead of the known forms."""
    same_loss: bool = False
    """All ranks must print the same loss at each step."""
    silent_after: float = SILENT_SECONDS
    ignored: frozenset[str] = frozenset()
    """Checks whose verdicts are left out."""


class LogWatch:
    """Takes lines; tells series and verdicts. ``names``: of the logs, where there are any."""

    def __init__(self, names: Sequence[str] = (), options: LossOptions = LossOptions()) -> None:
        self.options = options
        self.agreement = RankAgreement(options.same_loss)
        self.notes: list[str] = []
        self.heartbeats: list[tuple[int, bytes]] = []
        """File and line of what HCCL's heartbeat says."""
        self._by_rank: dict[int | None, dict[str, LossSeries]] = {}
        self._primary = ""
        self._file_ranks = self._ranks_of(names)
        self._arrived: float | None = None
        self._longest_wait = 0.0
        self._live_since: float | None = None

    def _ranks_of(self, names: Sequence[str]) -> list[int | None]:
        hints = read_names(names)
        ranks = [hint.rank if hint.rank is not None else hint.local_rank for hint in hints]
        if len(names) == 1:
            return ranks
        if None in ranks or len(set(ranks)) < len(ranks):
            self.notes.append("the names of the files do not tell their ranks: they are counted in the order given")
            return list(range(len(names)))
        return ranks

    def add(self, file: int, line: bytes, now: float | None = None) -> LossLine | None:
        """One line of a file. ``now``: seconds of a clock, where the line has just been written."""
        if b"HCCL" in line or b"Heartbeat" in line:
            start = line[: PATTERN_LINE * 4]
            if len(self.heartbeats) < MOST_HEARTBEATS and HEARTBEAT.search(start):
                self.heartbeats.append((file, start))
        return self.add_line(line, self._file_ranks[file], now)

    def add_line(self, line: bytes, rank: int | None, now: float | None = None, stream: str = "") -> LossLine | None:
        """One line of a rank. ``stream``: keeps what one rank prints into two streams apart; empty: its stdout."""
        if self.options.pattern is not None:
            text = line[: PATTERN_LINE * 4].decode("utf-8", "replace")[:PATTERN_LINE]
            reading = read_by_pattern(text, self.options.pattern)
        elif b"oss" in line or b"OSS" in line or _LOSS_IN_CHINESE in line:
            reading = read_loss(line.decode("utf-8", "replace"))
        else:
            return None
        if reading is None:
            return None
        if stream:
            reading = msgspec.structs.replace(reading, name=f"{reading.name} {stream}")
        self.add_reading(reading, reading.rank if reading.rank is not None else rank, now)
        return reading

    def add_reading(self, reading: LossLine, rank: int | None, now: float | None = None) -> None:
        self._store(reading, rank)
        if now is not None:
            if self._arrived is not None and self._live_since is not None:
                self._longest_wait = max(self._longest_wait, now - self._arrived)
            self._arrived = now

    def live(self, now: float) -> None:
        """All that was written before has been read: from now on, time between lines is the training's."""
        if self._live_since is None:
            self._live_since = self._arrived = now

    def _store(self, reading: LossLine, rank: int | None) -> None:
        names = self._by_rank.get(rank)
        if names is None:
            if len(self._by_rank) >= MAX_RANKS:
                note = filled("more than {0} ranks: the others are not examined", MAX_RANKS)
                if note not in self.notes:
                    self.notes.append(note)
                return
            names = self._by_rank[rank] = {}
        series = names.get(reading.name)
        if series is None:
            if len(names) >= MAX_NAMES and reading.name != PROBE:
                return
            series = names[reading.name] = LossSeries()
        series.add(reading, series.lines + 1)
        if not self._primary or (reading.name == PROBE and self._primary != PROBE):
            self._primary, self.agreement = reading.name, RankAgreement(self.options.same_loss)
        if rank is not None and reading.name == self._primary and series.last_step is not None:
            if reading.name.startswith("reduced_"):
                self.agreement.must = True
            self.agreement.add(rank, series.last_step, reading.value, reading.digits)

    @property
    def series(self) -> Mapping[int | None, LossSeries]:
        """Of each rank, that of the loss which the program states, or which its log names most often."""
        return {
            rank: names.get(PROBE) or max(names.values(), key=lambda entry: entry.lines)
            for rank, names in self._by_rank.items()
        }

    @property
    def losses(self) -> int:
        return sum(entry.lines for entry in self.series.values())

    @property
    def compared(self) -> int:
        """Steps on which ranks that must print the same loss were compared; 0 where this is not required."""
        return self.agreement.compared if self.agreement.must else 0

    @property
    def decided(self) -> bool:
        """There were enough losses for a healthy verdict to say something."""
        return self.compared >= MIN_COMPARED or any(entry.count >= MIN_JUDGED for entry in self.series.values())

    def verdicts(self, now: float | None = None, *, is_over: bool = True) -> list[LossVerdict]:
        """What is wrong so far. ``now``: of the same clock as that of `add`, while the logs are followed.

        ``is_over``: as of `judge`.
        """
        verdicts = judge(self.series, self.agreement, is_over)
        waited = now - self._arrived if now is not None and self._arrived is not None else 0.0
        if self._by_rank and waited > max(self.options.silent_after, SILENT_FACTOR * self._longest_wait):
            values: Values = {"of_whom": "", "seconds": f"{waited:.0f}", "usual": f"{self._longest_wait:.0f}"}
            verdicts.append(LossVerdict("silent", (), None, values))
        return [entry for entry in verdicts if CHECK_OF[entry.kind] not in self.options.ignored]

    def curves(self, most: int = MAX_RANKS) -> tuple[LossCurve, ...]:
        """The losses of each rank in figures, by rank."""
        ordered = sorted(self.series.items(), key=lambda item: -1 if item[0] is None else item[0])
        return tuple(_curve(rank, series) for rank, series in ordered[:most])


def _curve(rank: int | None, series: LossSeries) -> LossCurve:
    last = series.last.value if series.last else math.nan
    first = series.first[0] if series.first else last
    return LossCurve(
        rank=rank,
        losses=series.lines,
        not_finite=series.not_finite_count,
        first_step=series.first_step,
        last_step=series.last_step,
        first=_finite(first),
        last=_finite(last),
        points=tuple(map(_finite, series.drawn)),
        resumed_at=series.resumed_at,
    )


def _finite(value: float) -> float | None:
    return float(f"{value:.8g}") if math.isfinite(value) else None


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


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    if sys.version_info >= (3, 11):
        from re import _constants as codes  # type: ignore[attr-defined]
        from re import _parser as parser  # type: ignore[attr-defined]
    else:
        import sre_constants as codes
        import sre_parse as parser


def compile_pattern(text: str) -> re.Pattern[str]:
    r"""The pattern, with at most one group, or a group named ``loss``.

    Raises: PatternRefusedError for what is no regular expression, or can take more than a bounded time.

    >>> compile_pattern(r"cost is ([0-9.]+)").search("cost is 2.5")[1]
    '2.5'
    """
    if len(text) > MAX_PATTERN:
        raise PatternRefusedError(filled("it has {0} characters; expected at most {1}", len(text), MAX_PATTERN))
    try:
        tree = parser.parse(text)
        pattern = re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternRefusedError(filled("{0}; expected a regular expression", error)) from None
    if _unbounded(tree, inside=False) > MAX_UNBOUNDED:
        text = "it has more than {0} of * and +; expected fewer, or repetitions with a bound such as {1,20}"
        raise PatternRefusedError(filled(text, MAX_UNBOUNDED))
    if pattern.groups and "loss" not in pattern.groupindex and pattern.groupindex:
        raise PatternRefusedError("none of its named groups is loss; expected (?P<loss>...)")
    return pattern


def _unbounded(tree: Any, inside: bool) -> int:
    """Repetitions without a bound. Raises: PatternRefusedError for one inside another, or for a backreference."""
    count = 0
    for code, argument in tree:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT) or str(code) == "POSSESSIVE_REPEAT":
            low, high, body = argument
            repeated = high == codes.MAXREPEAT or high > MAX_REPEAT
            if inside and high > 1 and high != low:
                raise PatternRefusedError("a repetition stands inside another; expected none, as in ([0-9.]+)")
            count += repeated
            count += _unbounded(body, inside or high > 1)
        elif code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            raise PatternRefusedError("it refers back to a group; expected no such reference")
        elif code is codes.SUBPATTERN:
            count += _unbounded(argument[-1], inside)
        elif code is codes.BRANCH:
            count += sum(_unbounded(branch, inside) for branch in argument[1])
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            count += _unbounded(argument[1], inside)
        elif str(code) == "ATOMIC_GROUP":
            count += _unbounded(argument, inside)
    return count
