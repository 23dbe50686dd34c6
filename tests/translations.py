"""The Chinese catalogue: what there is to translate, what is translated, and how it is compiled.

python -m tests.translations                       how much of each part is translated
python -m tests.translations list checks/NAME ...  the English texts, numbered, in the form that ``fill`` reads
python -m tests.translations fill FILE ...         writes the texts of FILE into the catalogue
python -m tests.translations accept checks/NAME    the English page has changed, and its translation still holds
"""

from __future__ import annotations

import ast
import errno
import json
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from doctor.analysis.causes import EVERYONE
from doctor.diagnose.render.page import _ROLES
from doctor.diagnose.render.text import _LABELS
from doctor.engine.catalog import load_checks
from doctor.engine.check_files import AREAS
from doctor.engine.language import FOLDER
from doctor.engine.sanitize import JSON_PROBLEMS
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.toml_compat import loads
from doctor.fix.file_edits import NOT_THERE
from doctor.history.render_history import LEGEND
from doctor.history.tracks import TRACK_KINDS
from doctor.net.matrix import OUTCOMES
from doctor.remedy.playbook import RISKS, WHO
from doctor.report.diff.compare import KINDS
from doctor.report.diff.render import CATEGORIES
from doctor.report.explain.checks import _intents, _summary, _with_needs
from doctor.report.explain.playbooks import EXAMPLE_NOTE
from doctor.report.formats.html import script_texts
from doctor.report.layout.failures import PROOF
from doctor.report.layout.formatting import unwrap_lines
from doctor.report.web.loss_chart import REFERENCE
from doctor.report.web.path_maps import _FIGURES
from doctor.report.web.report_values import _TITLES, JOB, STATES
from doctor.smoke.hang.describe import PROCESS_STATES
from tests.value_texts import module_tree, nodes, value_texts
from tests.value_words import expected_values, fault_meanings, launcher_titles, resumed_texts, value_words

ROOT = Path(__file__).resolve().parents[1]
SOURCES = Path(FOLDER) / "zh"
COMPILED = Path(FOLDER) / "zh.json"
PAGE_PARTS = {"claim": "", "why": "Why it matters", "do": "What to do", "inside": "In a container", "source": "Source"}
"""The parts of a check's page, and the section that each one is."""
OPTIONAL = {"source"}
PLACEHOLDER = re.compile(r"\{\w*\}")
COMMAND = re.compile(r"`[^`]*`")
NAME = re.compile(
    r"[A-Za-z]\w*_\w+|(?<![\w-])--?[a-z][\w-]*|\b[A-Z]{1,3}\d{4,}\w*|(?<![\w:>])/[a-z][\w./-]+|\b\d[\d.]*\b"
    r"|\bhttps://\S+",
    re.ASCII,
)
"""What no language changes: a variable or function, an option, an error code, a path, a number, an address."""
_CODE = re.compile(r"\(\?|\\[dswb(.]|[\[(]\^|^/\S*$|^-(?!-[\w-]+ (?:\{0\}[: ]|or |of ))")
_PROSE = re.compile(r"[A-Za-z]{2,}[,;:]? [A-Za-z{]|\} [a-z]{2,}|\}'s [a-z]{2,}|^an? [a-z]{2,}$")
ERRORS = {
    "InventoryError",
    "BadRun",
    "PlanStoreError",
    "BadReport",
    "UnknownName",
    "CommandError",
    "UsageError",
    "InputError",
    "ConfigError",
    "WordError",
    "_UnreadSecret",
    "require_one_of",
}
REASONS = {"Unreadable", "Absent", "Skip", "Reason", "Finding"}
PHRASES = {"phrase", "localized", "noun"}
PAGES = (
    "report.html.jinja",
    "parts.html.jinja",
    "frame.html.jinja",
    "page.js",
    "check_grid.js",
    "path_map.js",
)
"""Files of the HTML report that say something themselves."""


def literal(node: ast.AST) -> str:
    """A string of the code; what an f-string fills in is ``{0}``, ``{1}``. Empty for all else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts, number = [], 0
        for value in node.values:
            if isinstance(value, ast.Constant):
                parts.append(str(value.value))
            else:
                parts.append(f"{{{number}}}")
                number += 1
        return "".join(parts)
    return ""


def prose(tree: ast.AST) -> Iterator[str]:
    """The sentences among the strings of a syntax tree, without docstrings, patterns, commands and quoted types."""
    every = nodes(tree)
    skipped = {id(node.value) for node in every if isinstance(node, ast.Expr)}
    for node in every:
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
        types = (getattr(node, "annotation", None), getattr(node, "returns", None))
        skipped.update(id(part) for one_type in types if one_type is not None for part in ast.walk(one_type))
    for node in every:
        text = literal(node)
        if text and id(node) not in skipped and _PROSE.search(text) and not _CODE.search(text):
            yield text


def arguments(path: Path, functions: set[str]) -> Iterator[str]:
    """The strings that are given to calls of these functions, in any argument, at any depth."""
    for name, node in _calls(path):
        if name in functions:
            own_words = node.args[:1] if functions is PHRASES else node.args
            for argument in (*own_words, *(keyword.value for keyword in node.keywords if functions is not PHRASES)):
                yield from texts_of(argument)


def counted_nouns(path: Path) -> Iterator[tuple[str, str]]:
    """What is counted with `count_noun`, and its plural."""
    for name, node in _calls(path):
        if name == "count_noun" and isinstance(node.func, ast.Name):
            plural = next(texts_of(node.args[2]), "") if node.args[2:] else ""
            yield from ((noun, plural or f"{noun}s") for noun in texts_of(node.args[1]))


@cache
def _calls(path: Path) -> tuple[tuple[str, ast.Call], ...]:
    """Every call of a module, by the last part of the function's name."""
    calls = (node for node in nodes(module_tree(path)) if isinstance(node, ast.Call))
    named = ((getattr(node.func, "id", "") or getattr(node.func, "attr", ""), node) for node in calls)
    return tuple((name, node) for name, node in named if name)


def texts_of(node: ast.AST) -> Iterator[str]:
    """The strings that an expression can be."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "filled":
        node = node.args[0]
    if isinstance(node, ast.IfExp):
        yield from (*texts_of(node.body), *texts_of(node.orelse))
    elif text := literal(node):
        yield text


@cache
def check_texts(stem: str) -> dict[str, str]:
    """The English texts of a check: ``claim``, ``why``, ``do``, ``source``, and its messages as ``1``, ``2``..."""
    tree = module_tree(ROOT / "checks" / f"{stem}.py")
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == stem)
    page = ast.get_docstring(function) or ""
    texts = {"claim": page.partition("\n")[0].rstrip(".")}
    for part, title in PAGE_PARTS.items():
        match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page, re.M | re.S) if title else None
        if match:
            texts[part] = match[1].strip()
    return texts | {str(number): text for number, text in enumerate(dict.fromkeys(prose(tree)), 1)}


@cache
def playbook_texts(name: str) -> dict[str, str]:
    """The English texts of a playbook, numbered: its title, the paragraphs of its note, what its steps say."""
    book = loads((ROOT / "playbooks" / f"{name}.toml").read_text("utf-8"))
    notes = [part for part in book.get("note", "").strip().split("\n\n") if part]
    rows = [step[key] for step in book["step"] for key in ("say", "irreversible") if step.get(key)]
    return {str(number): text for number, text in enumerate(dict.fromkeys([book["title"], *notes, *rows]), 1)}


@cache
def signature_texts(name: str) -> dict[str, str]:
    """The English texts of a file of signatures, numbered: all that people read, without commands alone."""
    path = ROOT / "doctor" / "diagnose" / "signatures" / f"{name}.toml"
    texts: list[str] = []
    for signature in loads(path.read_text("utf-8"))["signature"]:
        for key in SIGNATURE_KEYS:
            value = signature.get(key, [])
            texts += [value] if isinstance(value, str) else value
    return {str(number): text for number, text in enumerate(filter(has_words, dict.fromkeys(texts)), 1)}


SIGNATURE_KEYS = ("title", "causes", "confirm", "fix", "note")
"""All that people read of a signature; patterns, samples, sources and names stay as they are."""


def has_words(text: str) -> bool:
    """Whether a text is more than one command, in which every word is a program's.

    >>> has_words("npu-smi info -t health -i N"), has_words("on each host: npu-smi info")
    (False, True)
    >>> has_words("npu-smi info (HBM usage)"), has_words("ulimit -n; ls /proc/PID/fd | wc -l")
    (True, False)
    """
    text = text.replace("`", "")
    return not _COMMAND_ALONE.match(text) or bool(_SENTENCE.search(text))


_COMMAND_ALONE = re.compile(
    r"(?:doctor|npu-smi|hccn_tool|dmesg|nvidia-smi|ibstat|ibdev2netdev|ip|ss|cat|grep|env|python3?|pip|df|free|ls|lsof"
    r"|ulimit|sysctl|ps|sacct|scontrol|sinfo|journalctl|ethtool|mount|findmnt|getent|chronyc|timedatectl|ping|nc|nft"
    r"|msnpureport|export|iptables|printenv|lscpu|numactl|ldd|stat|hostname|ibv_devinfo|dcgmi|kubectl|docker|which) "
)
_SENTENCE = re.compile(
    r"[;:,] (?:and |the |it |on |a |of )|\b(?:the|of|on|on each|and|which|whose) [a-z]+\b"
    r"| (?:and|or|over|per|shows|too) |; [a-z]+ [a-z]+\b|\((?:[A-Za-z]+[, ]+)+[A-Za-z]+\)"
)
"""Words between or behind commands, also in brackets: ``ulimit -l too small``, ``npu-smi info (HBM usage)``."""


@cache
def help_texts() -> list[str]:
    """What the help of every command says: its description by paragraph, its options, the list of commands."""
    from typer.main import get_command

    from doctor.cli.app import COMMANDS, application, help_table

    texts: list[str] = [*COMMANDS.values(), *help_table().groups, "Examples"]
    texts += [comment for examples in help_table().examples.values() for _, comment in examples]
    for options in ([], *([name] for name in COMMANDS)):
        command: Any = get_command(application(options))
        if options:
            command = command.commands[options[0]]
        texts += [" ".join(part.split()) for part in (command.help or "").split("\n\n") if not part.startswith("\b")]
        texts += [option.help for option in command.params if getattr(option, "help", None)]
    return texts


def page_texts() -> Iterator[str]:
    """What the templates and scripts of the HTML report say, and the words that they take from Python."""
    for name in PAGES:
        yield from script_texts((ROOT / "doctor" / "report" / "web" / name).read_text("utf-8"))
    yield from (*STATES.values(), JOB, *_TITLES.values(), *(figure[1] for figure in _FIGURES))
    yield from (outcome.value for outcome in OUTCOMES.values())
    yield from ("fill in", "when", "state", "check", "hosts", "run (UTC)", "command", "verdict", "came", "went")
    yield from ("healthy", "failed", "warnings", "nothing", *TRACK_KINDS, LEGEND)
    yield from sorted(CATEGORIES)


@cache
def code_texts(part: str) -> dict[str, str]:
    """The English texts of the package, numbered: its ``report``, ``errors``, ``reasons``, ``values`` or ``help``."""
    if part == "help":
        observed_modules: Iterable[str] = help_texts()
    elif part == "values":
        observed_modules = value_texts(ROOT / "doctor")
        others = {text for other in ("report", "errors", "reasons", "help") for text in code_texts(other).values()}
        beyond_modules = (
            *launcher_titles(ROOT / "doctor" / "environment" / "launchers.toml"),
            *expected_values(ROOT / "doctor" / "job" / "variable_values.toml"),
            *fault_meanings(ROOT / "doctor" / "facts" / "kernel_faults.toml"),
            *resumed_texts(ROOT / "doctor" / "analysis" / "values" / "resumed.toml"),
            *SYSTEM_ERRORS,
            *JSON_PROBLEMS,
        )
        observed_modules = (text for text in (*observed_modules, *beyond_modules) if text not in others)
    else:
        functions = {"report": PHRASES, "errors": ERRORS, "reasons": REASONS}[part]
        modules, checks = sorted((ROOT / "doctor").rglob("*.py")), sorted((ROOT / "checks").glob("*.py"))
        observed_modules = (text for path in modules for text in arguments(path, functions))
        if part == "errors":
            observed_modules = (*observed_modules, *PARSER)
        if part == "report":
            observed_modules = (
                *observed_modules,
                *page_texts(),
                *LABELS,
                *sorted(
                    {
                        _summary(used)
                        for check in load_checks()
                        for used in (*_with_needs(check.facts), *_intents(check))
                    }
                ),
                *value_words(ROOT / "checks"),
                *(f"{{count}} {noun}" for path in (*modules, *checks) for noun, _ in counted_nouns(path)),
            )
        else:
            observed_modules = (text for text in observed_modules if text in PARSER or _PROSE.search(text))
    texts = (text for text in dict.fromkeys(observed_modules) if re.search(r"[^\W\d]|^\W+$", PLACEHOLDER.sub("", text)))
    return {str(number): text for number, text in enumerate(texts, 1)}


SYSTEM_ERRORS = (
    "Name or service not known",
    "Temporary failure in name resolution",
    *map(
        os.strerror,
        (
            *(
                errno.ENOENT,
                errno.EACCES,
                errno.EPERM,
                errno.EISDIR,
                errno.ENOTDIR,
                errno.EEXIST,
                errno.EIO,
                errno.ENOSPC,
            ),
            *(errno.EROFS, errno.EMFILE, errno.ELOOP, errno.ENAMETOOLONG, errno.EDQUOT, errno.ENXIO),
            *(
                errno.ECONNREFUSED,
                errno.ETIMEDOUT,
                errno.EHOSTUNREACH,
                errno.ENETUNREACH,
                errno.ECONNRESET,
                errno.EPIPE,
            ),
            *(errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.ENOMEM, errno.EAGAIN, errno.EINVAL),
        ),
    ),
)
"""What the system says of a file, a connection or a name."""
PARSER = ("Usage: ", "Try '{command} -h' for help.", "Error: ", "Aborted.")
"""What stands around a message of the command line's parser."""
LABELS = (
    *("ok", "FAIL", "warn", "crash", "unknown", "skip", "waived", "error", "warning"),
    *("HEALTHY", "FAILED", "WARNINGS", "UNKNOWN", "NOTHING", *AREAS),
    *(
        "one host",
        "no accelerator found",
        "no host answered",
        "this host",
        "these hosts",
        "their subject",
        "not checked",
        "smoke run",
    ),
    *("severity", "healthy condition", "risk", "what it does", "manual", "{risk}, by name", "playbook"),
    *("why", "fix", "observed", "expected", "blocked", "more", "note", "trace", "found", "checks", "what"),
    *("cause", "links", "call", "waited", "evidence", "stack", "unfinished", "ran", "ranks", "stages", "layouts"),
    *("restored", "removed", NOT_THERE, "to:", REFERENCE),
    *("stopped: kill -CONT {0} continues it", "frozen (docker pause, the cgroup freezer)"),
    *("it", "stuck", "sleeps", "computes", "moves", "wait", "waits"),
    *("loss", "speed", "devices", "soak", "follows", "findings", "crashed"),
    *("only where", "before", "run", "filter", "file", "undo"),
    *(
        "Why it matters",
        "What a finding says, for example",
        "What to do",
        "In a container",
        "Source",
        "Job settings it uses",
    ),
    *("from", "of", "incoming connections to", "outgoing connections to", EVERYONE),
    *(kind.report_text for kind in FAILURE_KINDS.values()),
    *(
        text
        for kind in FAILURE_KINDS.values()
        for text in (kind.differing_text, kind.unreached_text, kind.unnamed_text)
        if text
    ),
    *(
        "{0} from {1}",
        "{0} host from {1}",
        "{0} hosts from {1}",
        "the command line",
        "this host alone",
        "each host's doctor node",
        "rank table: {0}",
        "environment: of {0}",
        "{0} ({1})",
    ),
    *WHO,
    *RISKS,
    *KINDS,
    *(f"label: {label}" for label in sorted(_LABELS)),
    *_ROLES.values(),
    *("any", "certain", "likely", "possible", "known and unknown", "hosts and checks"),
    *("diff: findings", "diff: before", "diff: now"),
    *PROOF,
    *("Likely causes", "Confirm", "Fix", "Follows from it", "Checks before the next job", "Playbooks", "Patterns"),
    *("Example", "Sources", "interrupts jobs", "needs a reboot", ", as root", ", as root through sudo -n"),
    *("{check} passes", "{check} also depends on hosts that follow", "{check} still fails: {reason}"),
    *("{check} failed since the fix, and passed before: {reason}", "{check} is unknown: {reason}"),
    *("FIXED", "NOT FIXED", "INTERRUPTED", "Most likely: ", "Possibly: ", "."),
    *("does", "job", "record", "log", "rank", "ranks", "loss", "step", "speed", "end"),
    *(f"{{count}} {noun}" for noun in ("process", "group", "rank", "step", "line", "file")),
    *PROCESS_STATES.values(),
    " or ",
    *("planned", "undone", "host", "topic", "log", "layers"),
    EXAMPLE_NOTE,
)
"""Words of a report that reach `localized` as values."""


def parts() -> list[str]:
    """Every part of the catalogue: the name of its file without the ending."""
    checks = [f"checks/{path.stem}" for path in sorted((ROOT / "checks").glob("*.py"))]
    playbooks = [f"playbooks/{path.stem}" for path in sorted((ROOT / "playbooks").glob("*.toml"))]
    files = sorted((ROOT / "doctor" / "diagnose" / "signatures").glob("*.toml"))
    signatures = [f"signatures/{path.stem}" for path in files if signature_texts(path.stem)]
    return [*checks, *playbooks, *signatures, "report", "errors", "reasons", "values", "help"]


def english_texts(part: str) -> dict[str, str]:
    """What there is to translate in a part, by key."""
    folder, _, name = part.rpartition("/")
    return _READERS[folder](name)


_READERS = {"checks": check_texts, "playbooks": playbook_texts, "signatures": signature_texts, "": code_texts}


def fingerprint(text: str) -> str:
    """Changes with the words of a text, and not with its line breaks."""
    return f"{zlib.crc32(' '.join(text.split()).encode()):08x}"


def _document(part: str) -> dict[str, dict[str, str] | str]:
    path = SOURCES / f"{part}.toml"
    return loads(path.read_text("utf-8")) if path.exists() else {}


def translated(part: str) -> dict[str, str]:
    """The Chinese texts of a part by key; without those whose English has changed since."""
    document, english = _document(part), english_texts(part)
    messages, stamps = document.get("messages", {}), document.get("of", {})
    assert isinstance(messages, dict) and isinstance(stamps, dict)
    result = {key: messages[text] for key, text in english.items() if key.isdecimal() and text in messages}
    for key in PAGE_PARTS.keys() & english.keys() & document.keys():
        if stamps.get(key) == fingerprint(english[key]):
            result[key] = str(document[key])
    return result


def outdated(part: str) -> list[str]:
    """The texts of a catalogue file whose English is no longer there, or has changed."""
    document, english = _document(part), english_texts(part)
    messages, stamps = document.get("messages", {}), document.get("of", {})
    assert isinstance(messages, dict) and isinstance(stamps, dict)
    removed = [text for text in messages if text not in english.values()]
    keys = PAGE_PARTS.keys() & document.keys()
    return removed + [key for key in keys if stamps.get(key) != fingerprint(english.get(key, ""))]


def untranslated(part: str) -> list[str]:
    """The keys of the texts that have no translation; the source of a rule may stay English."""
    have = translated(part)
    return [key for key in english_texts(part) if key not in have and key not in OPTIONAL]


def compiled() -> str:
    """The catalogue as the program reads it: Chinese by English, one text a line."""
    texts: dict[str, str] = {}
    for part in parts():
        english = english_texts(part)
        texts.update({english[key]: text for key, text in translated(part).items() if text != english[key]})
    for path in (*(ROOT / "doctor").rglob("*.py"), *(ROOT / "checks").glob("*.py")):
        for noun, plural in counted_nouns(path):
            texts[f"{{count}} {plural}"] = texts[f"{{count}} {noun}"]
    rows = (
        f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(texts[key], ensure_ascii=False)}" for key in sorted(texts)
    )
    return "{\n" + ",\n".join(rows) + "\n}\n"


def _string(text: str) -> str:
    """A TOML string: basic strings are JSON's."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _page_string(text: str) -> str:
    literal_text = text.replace("\\", "\\\\").replace('"""', '""\\"')
    return f'"""\n{literal_text}"""' if "\n" in text or len(text) > 60 else _string(text)


def file_text(part: str, texts: dict[str, str]) -> str:
    """A catalogue file with these texts, by key."""
    english = english_texts(part)
    lines = [f"{key} = {_page_string(texts[key])}" for key in PAGE_PARTS if key in texts]
    messages = [key for key in english if key.isdecimal() and key in texts]
    if messages:
        lines += ["", "[messages]", *(f"{_string(english[key])} = {_string(texts[key])}" for key in messages)]
    stamps = [f'{key} = "{fingerprint(english[key])}"' for key in PAGE_PARTS if key in texts]
    return "\n".join([*lines, *(["", "[of]", *stamps] if stamps else [])]).lstrip("\n") + "\n"


def write(part: str, texts: dict[str, str]) -> None:
    path = SOURCES / f"{part}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(file_text(part, texts), "utf-8")


def _lines(text: str) -> str:
    """Without the line breaks that are the file's and not the text's."""
    return "\n".join(line for line in unwrap_lines(text) if line.strip())


def listing(part: str, only_missing: bool = True) -> str:
    """The English texts of a part, as ``fill`` reads them."""
    english, have = english_texts(part), translated(part)
    rows = [f"{key}: {_lines(text)}" for key, text in english.items() if not only_missing or key not in have]
    return "\n".join([f"### {part}", *rows]) + "\n" if rows else ""


_KEY = re.compile(r"(claim|why|do|inside|source|\d+): ?(.*)\Z")


def fill(text: str) -> list[str]:
    """Writes the texts of a list whose English was replaced by Chinese. ``=`` keeps the English. Returns complaints."""
    results: dict[str, dict[str, str]] = {}
    part = key = ""
    for line in text.splitlines():
        match = _KEY.match(line)
        if line.startswith("### "):
            part, key = line[4:].strip(), ""
            results[part] = {}
        elif match:
            key = match[1]
            results[part][key] = match[2]
        elif key and line.strip():
            results[part][key] += "\n" + line
    problems = []
    for part, texts in results.items():
        english = english_texts(part)
        unknown = sorted(texts.keys() - english.keys())
        problems += [f"{part}: {key}: no such text" for key in unknown]
        filled = {key: english[key] if value == "=" else value for key, value in texts.items() if key in english}
        write(part, translated(part) | filled)
        problems += [
            f"{part}: {key}: {problem}" for key in filled for problem in disagreements(english[key], filled[key])
        ]
    return problems


def disagreements(english: str, chinese: str) -> Iterator[str]:
    """Why a translation cannot stand for its English: other placeholders, commands, names or numbers."""
    for name, pattern in (("placeholders", PLACEHOLDER), ("commands", COMMAND)):
        expected = {" ".join(part.split()) for part in pattern.findall(english)}
        observed = {" ".join(part.split()) for part in pattern.findall(chinese)}
        if expected != observed:
            yield f"{name}: lost {sorted(expected - observed)}, unexpected {sorted(observed - expected)}"
    names = {name.rstrip(".,:;)") for name in NAME.findall(english)}
    lost = sorted(name for name in names if name not in chinese and name.rstrip("s") not in chinese)
    if lost:
        yield f"names and numbers: lost {lost}"
    if not chinese.strip():
        yield "empty"


def main(argv: list[str]) -> int:
    if argv[:1] == ["list"]:
        print("\n".join(filter(None, (listing(part) for part in argv[1:] or parts()))))
    elif argv[:1] == ["fill"]:
        problems = [problem for name in argv[1:] for problem in fill(Path(name).read_text("utf-8"))]
        print("\n".join(problems))
        return 1 if problems else 0
    elif argv[:1] == ["accept"]:
        for part in argv[1:]:
            document = _document(part)
            pages = {key: str(document[key]) for key in PAGE_PARTS.keys() & document.keys()}
            write(part, translated(part) | pages)
    else:
        for part in parts():
            total = [key for key in english_texts(part) if key not in OPTIONAL]
            done = len(total) - len(untranslated(part))
            if done < len(total):
                print(f"{part}: {done} of {len(total)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
