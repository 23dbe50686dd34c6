"""The text of npu-smi: why it did not start, tables by the names of their columns, and ``label : value`` lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, TypeVar

import msgspec

from doctor.engine.fact import Absent, DeviceList, Output, Probe, ProbeAnswer, Unreadable, run, unusable_reason
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import beginning, filled
from doctor.facts.reported_value import LACKED, ToolBlock, lacked_values, require_no_complaint, tool_blocks, value_state

_UNSUPPORTED = re.compile(
    r"not support|cannot be executed on a VM|not found\. *$|option is not found|(?:Error|Invalid) parameter of -t",
    re.M | re.I,
)
"""The tool's answers where the product, the driver or the container has no such query."""


INCOMPLETE = "may not be completely installed"
_EXPECTED = f"{INCOMPLETE}|DrvMngGetConsoleLogLevel failed"
"""Printed beside a good answer: the one is a fact of its own, the other is of the user's log level."""


class StartFailure(msgspec.Struct, frozen=True):
    """Why npu-smi did not start."""

    kind: Literal["driver", "busy", "library"]
    """driver: DCMI could not be initialised (-8005). busy: the device is in use (-8020). library: cannot be loaded."""
    message: str


def find_start_failure(output: Output) -> StartFailure | None:
    """The known errors of npu-smi before it reads any card."""
    text = f"{output.out}\n{output.err}"
    if "dcmi mod" not in text and "shared libraries" not in text:
        return None
    kinds: tuple[tuple[str, Literal["driver", "busy", "library"]], ...] = (
        (r"dcmi mod(?:ule|el) initialized? failed.*-8020.*", "busy"),
        (r"dcmi mod(?:ule|el) initialized? failed.*", "driver"),
        (r"(?:npu-smi: )?error while loading shared libraries.*", "library"),
    )
    for pattern, kind in kinds:
        match = re.search(pattern, text)
        if match:
            return StartFailure(kind, match.group(0).strip())
    return None


def read_npu_smi_text(output: Output, is_one_answer: bool = True) -> str:
    """What npu-smi printed. Raises: Absent, Unreadable with the check that tells why it did not start.

    ``is_one_answer``: of one call. Of several, each is judged by itself.
    """
    if output.ended == "absent":
        raise Absent(output.err or "npu-smi is not installed")
    failure = find_start_failure(output)
    if failure:
        raise Unreadable(filled("npu-smi does not start: {0}", failure.message), "npu-driver-not-loaded")
    why = unusable_reason(output)
    if why:
        raise Unreadable(filled("npu-smi: {0}", why))
    require_no_complaint("npu-smi", f"{output.out}\n{output.err}" if is_one_answer else output.err, _EXPECTED)
    return output.out


_CARDS_SCRIPT = """cards=$(npu-smi info -l </dev/null 2>&1) || { code=$?; printf '%s\\n' "$cards"; exit $code; }
printf '%s\\n' "$cards" | grep 'NPU ID' | tr -cd '0-9\\n' | while read -r card; do
  echo "-- $card --"
  text=$(timeout SECONDS npu-smi info -t QUERY -i "$card" </dev/null 2>&1)
  code=$?
  case $text in *"chip id"*)
    text=$(timeout SECONDS npu-smi info -t QUERY -i "$card" -c 0 </dev/null 2>&1)
    code=$? ;;
  esac
  printf '%s\\n' "$text"
  echo "-- exit $code --"
done
"""
"""Cards are those of ``npu-smi info -l``: their numbers are neither those of the device files nor without gaps. Older
tools want a chip (``Must input parameter of chip id.``): the first one is read."""

V = TypeVar("V")
CALL_SECONDS = 5
"""For one query of one card."""


class CardAnswer(msgspec.Struct, frozen=True):
    """What npu-smi printed for one card."""

    card: int
    text: str
    code: int | None
    """Exit status; None where the output was cut before it."""
    beside: str = ""
    """Why the text is no answer although npu-smi ended well."""

    @property
    def problem(self) -> str:
        """Why there is no answer, or empty."""
        if self.code == 0 and self.text.strip():
            return self.beside
        if self.code in (None, 124):
            return ToolBlock(str(self.card), self.text, self.code).failure("npu-smi", CALL_SECONDS)
        return strip_control_chars(self.text.strip().partition("\n")[0] or "npu-smi printed nothing", 120)


def per_card_probe(query: str, inventory: type[DeviceList]) -> Probe:
    """``npu-smi info -t QUERY`` for every card that npu-smi lists."""
    script = _CARDS_SCRIPT.replace("QUERY", query).replace("SECONDS", str(CALL_SECONDS))
    return run(script, requires="npu-smi", root=True, lane="npu-smi", timeout=60, repeats=True, inventory=inventory)


def card_answers(answer: ProbeAnswer) -> list[CardAnswer]:
    """The output for each card. Raises: Absent where the product has no such query, Unreadable."""
    blocks = tool_blocks(read_npu_smi_text(answer[""], is_one_answer=False), r"\d{1,9}", _EXPECTED)
    answers = [
        CardAnswer(int(block.name), block.text, block.code, problem)
        for block, problem in zip(blocks, block_problems(blocks), strict=True)
    ]
    if not answers:
        raise Unreadable("npu-smi info -l: it lists no card")
    if all(is_unsupported(card.text) for card in answers):
        raise Absent(filled("npu-smi has no such query here: {0}", answers[0].problem))
    return answers


def block_problems(blocks: Sequence[ToolBlock]) -> list[str]:
    """Of each block why it is no answer, or empty: it lacks chips that it counts, a row, or a value, that most have."""
    rows = [labelled_values(block.text) for block in blocks]
    labels = [{label for label, _ in labelled} for labelled in rows]
    counts = Counter(label for labelled in labels for label in labelled)
    usual = [label for label, count in counts.items() if count * 2 > sum(map(bool, labels))]
    answered = (
        (block.name.partition(" ")[2], _answered(labelled)) for block, labelled in zip(blocks, rows, strict=True)
    )
    lacked = lacked_values(dict(enumerate(answered)))
    problems = []
    for number, (block, labelled, present) in enumerate(zip(blocks, rows, labels, strict=True)):
        chips = [int(value) for label, value in labelled if label == "Chip Count" and re.fullmatch("[0-9]{1,3}", value)]
        ids = sum(label == "Chip ID" for label, _ in labelled)
        lacking = [label for label in usual if label not in present]
        if block.problem or not labelled:
            problems.append(block.problem)
        elif chips and ids < chips[0] and (ids or "Compatibility" not in present):  # -t board has no ids
            problems.append(filled("its answer has {0} of {1} chips", ids, chips[0]))
        elif number in lacked and not lacking:
            problems.append(filled("{0}: {1}", lacked[number][0].partition(" #")[0], LACKED))
        else:
            problems.append(filled("its answer has no row: {0}", lacking[0]) if lacking else "")
    return problems


_NO_FAULT = ("Error Code", "Error Information")
"""NA in them tells of no fault."""


def _answered(labelled: Sequence[tuple[str, str]]) -> set[str]:
    """The rows that have a value, of each chip: the label, with the number of the row among those of the label."""
    counts, answered = Counter[str](), set[str]()
    for label, value in labelled:
        if label not in _NO_FAULT and value_state(value) != "absent":
            answered.add(f"{label} #{counts[label]}")
        counts[label] += 1
    return answered


def read_cards(answer: ProbeAnswer, parse: Callable[[str], V | None]) -> tuple[dict[int, V], dict[str, str]]:
    """What ``parse`` makes of each card's text, and why the rest is unread. Raises: Absent, Unreadable."""
    values: dict[int, V] = {}
    unread: dict[str, str] = {}
    for card in card_answers(answer):
        value, problem = None, card.problem
        try:
            value = parse(card.text) if problem in ("", card.beside) else None
        except Unreadable as why:
            problem = str(why)
        if value is not None:
            values[card.card] = value
        if value is None or problem:
            unread[filled("NPU card {0}", card.card)] = problem or "not understood"
    if not values:
        raise Unreadable.of_each(unread)
    return values, unread


def is_unsupported(text: str) -> bool:
    """The tool has no such query: it says so, or prints its usage for a card that it knows."""
    usage = "Usage: npu-smi" in text and "Invalid card id" not in text
    return usage or bool(_UNSUPPORTED.search(text))


def table_rows(text: str) -> Iterator[list[str]]:
    """The rows of a table drawn with ``|``, as cells without the spaces around them."""
    for line in text.splitlines():
        bare = strip_escapes(line).strip().lstrip("> ")
        if bare.startswith("|"):
            yield [cell.strip() for cell in bare[1:].removesuffix("|").split("|")]


def strip_escapes(text: str) -> str:
    """The text without terminal escape sequences and control characters."""
    return text if text.isprintable() else re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]", "", text)


@lru_cache(maxsize=64)  # those of the cards of one host, which are looked through before they are read
def labelled_values(text: str) -> Sequence[tuple[str, str]]:
    """``label : value`` lines, in order; the label ends at the first colon."""
    lines = text.splitlines()
    if not "".join(lines).replace("\t", "").isprintable():
        lines = [strip_escapes(line) for line in lines]
    parts = [line.partition(":") for line in lines]
    return tuple((" ".join(label.split()), value.strip()) for label, colon, value in parts if colon and label.strip())


def row_excerpt(cells: list[str]) -> str:
    """A row that is not understood, short enough for a message."""
    return strip_control_chars(filled("not understood: {0}", beginning(" | ".join(cells), 120)))
