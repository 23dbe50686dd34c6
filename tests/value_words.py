"""Texts for people that are no sentences of a module: single words of findings, what playbooks print of a reboot.

`tests.value_texts` takes sentences alone. A word such as ``accepted`` behind "expected" is a text for people, too: a
new one has to be translated, or to be named in `FOREIGN`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from doctor.engine.toml_compat import loads

PRINTED_VALUES = {"observed", "expected", "way", "address"}
"""Values that reports show behind a label, or within the message."""
FOREIGN = {
    *("tsc", "performance", "on", "off", "hard", "completed", "netdetect", "address", "netmask", "gateway"),
    *("batch", "accumulation", "pipeline", "workers", "nodes", "weight", "expert", "fsdp", "deepspeed", "streaming"),
    *("quantization", "finetuning", "rank", "device", "tensor", "model", "data"),
}
"""Values of the kernel, options of launchers and keys of configuration files, as these write them."""
_WORD = re.compile(r"[a-z]{2,}(?:-[a-z]+)?")


def value_words(checks: Path) -> Iterator[str]:
    """The words that checks give to findings, without those of `FOREIGN`."""
    for path in sorted(checks.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                yield from (
                    word
                    for keyword in node.keywords
                    if keyword.arg in PRINTED_VALUES
                    for word in _vocabulary(keyword.value)
                )


def launcher_titles(table: Path) -> Iterator[str]:
    """The launchers in a sentence that are no names of programs, of ``environment/launchers.toml``."""
    rows = loads(table.read_text("utf-8"))["launcher"]
    yield from (row["title"] for row in rows if " " in row.get("title", ""))


def expected_values(table: Path) -> Iterator[str]:
    """What is expected of a variable's value, of ``variable_values.toml``."""
    rows = (row for effect in loads(table.read_text("utf-8")).values() for row in effect)
    yield from (row["expected"] for row in rows if "expected" in row)


def fault_meanings(table: Path) -> Iterator[str]:
    """What a message of the kernel means, of ``kernel_faults.toml``."""
    by_check = loads(table.read_text("utf-8"))["fault"]
    rows = (row for check, rows in by_check.items() if check != "clears" for row in rows.values())
    yield from (row["meaning"] for row in rows if "meaning" in row)


def resumed_texts(table: Path) -> Iterator[str]:
    """What is said of a training that lost a part of its checkpoint, of ``analysis/values/resumed.toml``."""
    yield from loads(table.read_text("utf-8")).values()


def _vocabulary(value: ast.expr) -> Iterator[str]:
    """The words that an expression can be, or that can stand in a list or mapping of it."""
    if isinstance(value, ast.Constant):
        if isinstance(value.value, str) and _WORD.fullmatch(value.value) and value.value not in FOREIGN:
            yield value.value
    elif isinstance(value, (ast.IfExp, ast.BoolOp, ast.List, ast.Tuple, ast.Set)):
        for part in ast.iter_child_nodes(value):
            if isinstance(part, ast.expr):
                yield from _vocabulary(part)
