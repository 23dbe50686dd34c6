"""The loss, the step and the rank in a line that a training program prints. Pure, and linear in the line's length.

The forms are those of MindSpore and MindFormers, Hugging Face, LLaMA-Factory, Lightning, Megatron-LM and MindSpeed,
DeepSpeed, tqdm, torchtitan, InternEvo, NeMo, nanoGPT and llm.c; `tests/watch/loss_samples.py` has a line of each, with
its source.
"""

from __future__ import annotations

import math
import re

import msgspec

MAX_LINE = 4096
"""Characters of a line that are looked at."""
NUMBER = r"[-+]?(?:nan|inf(?:inity)?|\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?|\.\d{1,20}(?:e[-+]?\d{1,4})?)"

_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LOSS = re.compile(rf"""loss['"]?\s{{0,8}}(?:[=:]|is\b)\s{{0,8}}['"\[(]?(?:tensor\()?({NUMBER})(?![\w.])""", re.I)
_BARE = re.compile(r"\bloss\s{1,8}([-+]?(?:nan|inf|\d{1,20}\.\d{1,20}(?:e[-+]?\d{1,4})?))(?=[\s,;:|)\]]|$)", re.I)
"""Without a sign between, as nanoGPT and llm.c print it; only beside the number of a step."""
_CHINESE = re.compile(
    rf"(?<![证试估类终佳小])(?:训练|平均|总|当前)?损失(?:值|函数值)?\s{{0,8}}[=:：为是]?\s{{0,8}}({NUMBER})(?![\w.])",
    re.I,
)
"""The same in Chinese, but what is before it makes it that of a validation, of a class, the last or the best."""
_JOINED = re.compile(r"([a-z0-9_./]{0,40})$", re.I)
_WORD = re.compile(r"([a-z]{1,20})[ -]$", re.I)
_NAMES = frozenset(
    [
        *("train_", "training_", "reduced_train_", "lm_", "mlm_", "masked_lm_", "total_", "mean_", "avg_"),
        *("average_", "running_", "step_", "batch_", "current_", "global_", "ce_", "crossentropy"),
        *("train/crossentropy", "nll_", "train/", "training/", "train.", "loss/"),
    ]
)
"""What may be joined to the front of ``loss``. Others are not what the optimizer lowers, or only a part of it."""
_NAME_WORDS = frozenset(["lm", "mlm", "train", "training", "total", "mean", "avg", "average", "running", "batch"])
_OTHER_WORDS = frozenset(
    [
        *("eval", "evaluation", "val", "valid", "validation", "test", "testing", "dev", "best", "final"),
        *("min", "lowest", "moe", "mtp", "aux", "auxiliary", "balancing", "initial", "kl", "value", "policy"),
        *("critic", "actor", "reward", "teacher", "distillation", "regularization", "contrastive", "dm"),
    ]
)
"""Words before ``loss`` that make it another one."""
_STEPS = (
    re.compile(r"""global_?step['"]?\s{0,4}(?:[=:]|is\b)\s{0,8}['"]?(\d{1,15})""", re.I),
    re.compile(r"\biteration\s{1,12}(\d{1,15})\s{0,8}/", re.I),
    re.compile(r"""\b(?:current_)?steps?['"]?\s{0,4}[:=\[ \t]{1,4}\s{0,12}(\d{1,15})\b""", re.I),
    re.compile(r"""\biter(?:ation)?s?['"]?\s{0,4}[:=\[ \t]{1,4}\s{0,12}(\d{1,15})\b""", re.I),
    re.compile(r"\|\s{0,8}(\d{1,15})/(?:\d{1,15}|\?)\s{0,4}\["),
    re.compile(r"(?:^|\s)(\d{1,15})(?:it|/(?:\d{1,15}|\?))\s{0,4}\[(?=\d{1,4}:\d\d)"),  # tqdm, with no total or no bar
    re.compile(r"\bepoch\b.{1,40}\bbatch(?:_idx)?['\"]?\s{0,4}[:=\[# \t]{1,4}\s{0,12}(\d{1,15})\b", re.I),
    re.compile(r"第\s{0,4}(\d{1,15})\s{0,4}(?:步|次迭代|个?批次)|步数?\s{0,4}[:：=]\s{0,4}(\d{1,15})"),
)
_EPOCH = re.compile(r"""\bepoch['"]?\s{0,4}[:=\[( ]{1,4}\s{0,8}['"]?(\d{1,9}(?:\.\d{0,12})?)""", re.I)
_RANK = re.compile(
    r"\s{0,4}(?:\[(?:default|rank)?[- ]?(\d{1,6})(?:/\d{1,6})?\]\s?:|\[rank[ :=_-]{0,3}(\d{1,6})|(\d{1,6}):\s"
    r"|\[\d{1,9},(\d{1,6})\]<std(?:out|err)>:?"
    r"|\(?rank[ :=_-]{0,3}(\d{1,6})(?:/\d{1,6})?\)?\s{0,2}(?:[]:,|-]|(?:step|iter|epoch|loss|train)))",
    re.I,
)
_BRACKETED_RANK = re.compile(r"[\[(]rank[ :=_-]{0,3}(\d{1,6})(?:/\d{1,6})?[\])]", re.I)
"""Behind the time and the level that a logger prints."""
HEAD_CHARS = 120
"""Of a line, in which it is looked for."""
_SKIPPED = re.compile(
    r"overflow(?:[ _]cond)?['\"]?\s{0,4}[:=]\s{0,4}\[?\s{0,4}true"
    r"|skipped iterations:\s{0,8}[1-9]|is_skip:\s{0,4}\[?\s{0,4}true",
    re.I,
)
_OTHER_BAR = re.compile(
    r"\b(?:eval(?:uat(?:e|ing|ion))?|val(?:id(?:at(?:e|ing|ion))?)?|test(?:ing)?|sanity checking)(?: [a-z]{1,20}){0,2}"
    r"(?: \d{1,6})?:\s{1,4}(?:\d{1,3}%\||\d{1,15}it )",
    re.I,
)
"""The description at the front of a progress bar that is not that of a training: whose loss is no step's."""
_SUMMARY = re.compile(r"train_runtime|train_samples_per_second|epoch_end|final loss", re.I)
"""Lines that sum up a run: their loss is no step's."""


class LossLine(msgspec.Struct, frozen=True):
    """What a line says of a step."""

    value: float
    """The loss; NaN and Inf as they were printed."""
    digits: int
    """Significant digits that were printed."""
    name: str = "loss"
    """The loss's name: ``loss``, ``lm loss``."""
    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    """As a prefix of its launcher or its own says: ``[rank3]:``, ``3: ``, ``[1,3]<stdout>:``, ``rank 3: ``."""
    skipped: bool = False
    """The step was left out, as a loss scaler does after an overflow."""


def read_loss(line: str) -> LossLine | None:
    """The loss of the training step that a line tells of; None where it tells none.

    >>> read_loss("[default3]: iteration  10/ 500 | lm loss: 1.332803E+01 | loss scale: 4096.0 |").value
    13.32803
    >>> read_loss("{'eval_loss': 1.2, 'epoch': 1.0}") is None
    True
    """
    line = line[:MAX_LINE]
    if "loss" not in line and "loss" not in line.lower():
        return _read_chinese(line) if "损失" in line else None
    if "\x1b" in line:
        line = _ESCAPE.sub("", line)
    if _SUMMARY.search(line) or _OTHER_BAR.search(line):
        return None
    for pattern in (_LOSS, _BARE):
        for match in pattern.finditer(line):
            name = _name(line[max(0, match.start() - 40) : match.start()])
            if name is not None and (pattern is _LOSS or _step(line) is not None):
                return _reading(line, name + "loss", match[1])
    return None


def _read_chinese(line: str) -> LossLine | None:
    match = _CHINESE.search(line)
    return _reading(line, "loss", match[1]) if match and _step(line) is not None else None


def read_by_pattern(line: str, pattern: re.Pattern[str]) -> LossLine | None:
    """The same by a user's pattern: its group ``loss``, or its first group; ``step`` and ``rank`` where it has them."""
    match = pattern.search(line)
    if not match:
        return None
    groups = match.groupdict()
    text = groups["loss"] if "loss" in groups else match[1] if pattern.groups else match[0]
    try:
        float(text or "")
    except ValueError:
        return None
    reading = _reading(line, "loss", text)
    numbers = {key: int(groups[key]) for key in ("step", "rank") if (groups.get(key) or "").isdecimal()}
    return msgspec.structs.replace(reading, **numbers) if numbers else reading


def _reading(line: str, name: str, text: str) -> LossLine:
    rank, epoch = _RANK.match(line) or _BRACKETED_RANK.search(line, 0, HEAD_CHARS), _EPOCH.search(line)
    return LossLine(
        value=float(text),
        digits=significant_digits(text),
        name=name,
        step=_step(line),
        epoch=float(epoch[1]) if epoch else None,
        rank=next((int(group) for group in rank.groups() if group), None) if rank else None,
        skipped=bool(_SKIPPED.search(line)),
    )


def _step(line: str) -> int | None:
    steps = (pattern.search(line) for pattern in _STEPS)
    return next((int(next(filter(None, match.groups()))) for match in steps if match), None)


def _name(before: str) -> str | None:
    """What stands before ``loss`` and belongs to its name; None where it is another loss."""
    joined = _JOINED.search(before)
    prefix = joined[1].lower() if joined else ""
    if prefix:
        return prefix if prefix in _NAMES else None
    word = _WORD.search(before)
    if word is None or (term := word[1].lower()) not in _NAME_WORDS | _OTHER_WORDS:
        return ""
    return f"{term} " if term in _NAME_WORDS else None


def significant_digits(text: str) -> int:
    """Digits that a printed number has from its first that is not 0; 0 where it is not finite or is 0.

    >>> significant_digits("1.332803E+01"), significant_digits("0.050"), significant_digits("nan")
    (7, 2, 0)
    """
    if not math.isfinite(float(text)):
        return 0
    mantissa = re.split("[eE]", text.lstrip("+-"))[0]
    return len(mantissa.replace(".", "").lstrip("0"))
