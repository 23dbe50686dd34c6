"""Options of a launcher, taken from the words that follow it. Pure, and linear in their number."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import is_number, python_number
from doctor.job.shell.word import Word
from doctor.job.variable_names import LEAST_LENGTH, is_misspelt, is_near
from doctor.job.variable_values import wrong_devices

_MOST_VALUES = 1024
_TYPOGRAPHY = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\uff0d"
"""Dashes that are no hyphen-minus."""
_WITH_UNIT = re.compile(
    r"(?:^|[:,])(?:[0-9]{1,4}(?:[gn]pus?|x)|one|two|three|four|six|eight|sixteen|all)(?:,|$)", re.IGNORECASE | re.ASCII
)
"""An amount with a word behind it, such as 8gpus, or in letters."""
_OF_THIS_HOST = ("gpu-ids", "devices")
"""Options whose device numbers stand behind no host."""


class OptionTable(msgspec.Struct, frozen=True, dict=True, kw_only=True, forbid_unknown_fields=True):
    """Which options a command has, and how many words each takes.

    Names with spaces between, without dashes, with ``-`` for ``_``; ``N/nodes`` is another spelling and its name.
    """

    values: str = ""
    """Followed by one word, or joined by ``=``."""
    flags: str = ""
    """Followed by none; a value may be joined by ``=``."""
    pairs: str = ""
    """Followed by two words."""
    abbreviates: bool = True
    """The beginning of a long name stands for it, where it is that of one name only."""
    joins_letters: bool = True
    """``-N4`` is ``-N 4``, ``-ul`` is ``-u -l``; False: ``-np`` is one name, as of mpirun."""
    last: frozenset[str] = frozenset()
    """Options after which no other is read: ``-c`` and ``-m`` of an interpreter."""
    assignments_first: bool = False
    """``NAME=value`` among the options sets a variable, as for ``env``."""
    modified: dict[str, tuple[str, ...]] = {}
    """By option: its words in any case; behind : or = stands more."""
    choices: dict[str, tuple[str, ...]] = {}
    """By option, all values that it takes."""
    numbers: str = ""
    """Options that take a whole number, as Python's int() reads it."""
    least: dict[str, float] = {}
    """Of options that take a number, the least that the launcher starts with."""
    usual: dict[str, tuple[str, ...]] = {}
    """By option, its values beside those that a site adds: a misspelt one is refused."""
    mistaken: dict[str, tuple[str, ...]] = {}
    """By option, values of another option that people give it."""
    separator: str = ""
    """Alone between the words of a long name; empty: ``-`` and ``_`` alike."""
    meant: dict[str, str] = {}
    """By an option of other commands, the one of this command that people mean by it."""
    apart: str = ""
    """Options that not all of its commands, or releases, have: no beginning stands for them."""
    amounts: str = ""
    """Options that take a number, or several with commas between, each perhaps behind a type and a colon."""
    devices: str = ""
    """Options that take device numbers with commas between, or ``all``; behind ``:``, numbers of a host."""

    @cached_property
    def word_counts(self) -> dict[str, int]:
        """By name, the number of words that follow it."""
        groups = enumerate((self.flags, self.values, self.pairs))
        return {entry.rpartition("/")[2]: count for count, names in groups for entry in names.split()}

    @cached_property
    def aliases(self) -> dict[str, str]:
        """By another spelling, such as the letter of a short option, its name."""
        entries = (entry.split("/") for names in (self.values, self.flags, self.pairs) for entry in names.split())
        return {short: long for *shorts, long in entries for short in shorts}

    def canonical(self, name: str) -> str:
        """The name in ``options``; empty for one that the command does not have."""
        other = {"-": "_", "_": "-"}.get(self.separator, "\0")
        if other in name and name not in self.aliases:
            return ""
        name = self.aliases.get(name, name)
        name = name if len(name) == 1 else name.replace("_", "-")
        name = self.aliases.get(name, name)
        if name in self.word_counts:
            return name
        every = self.begun(name)
        return every[0] if len(every) == 1 else ""

    @property
    def is_of_dashes(self) -> bool:
        """getopt_long of C reads them: ``-N=2`` has the value ``=2``, and ``--N`` is none of the short options."""
        return self.separator == "-" and self.joins_letters

    def spelled(self, name: str) -> str:
        """As the command writes it."""
        return name.replace("-", "_") if self.separator == "_" else name

    def begun(self, name: str) -> list[str]:
        """The long options that a beginning may stand for; the command refuses one that may stand for several.

        >>> OptionTable(values="nodes nodelist ntasks").begun("node")
        ['nodes', 'nodelist']
        """
        name = name.replace("_", "-")
        if not self.abbreviates or len(name) < 2:
            return []
        return [long for long in self.word_counts if long.startswith(name) and long not in self.apart.split()]

    def nearest(self, name: str) -> str:
        """The one long option that a word was meant to be; empty where there is none, or another word is possible.

        >>> table = OptionTable(values="nproc-per-node mem-per-cpu")
        >>> table.nearest("nproc-pernode"), table.nearest("nproc_per_ndoe"), table.nearest("mem-per-gpu")
        ('nproc-per-node', 'nproc-per-node', '')
        >>> OptionTable(values="port").nearest("prot"), OptionTable(values="port").nearest("ports")
        ('port', 'port')
        """
        if meant := self.meant.get(name.replace("_", "-")):
            return meant
        if name.endswith("s") and name[:-1] in self.word_counts and self.joins_letters:
            return name[:-1]
        names = {**dict.fromkeys(self.word_counts, ""), **self.meant}
        close = list(dict.fromkeys(names[word] or word for word in names if is_misspelt(name.lower(), word)))
        if not self.abbreviates and len(name) >= LEAST_LENGTH:  # a beginning, which other commands take
            close += [
                long for long in self.word_counts if long.startswith(name.replace("_", "-")) and long not in close
            ]
        if len(name) < LEAST_LENGTH:  # the letters of the other in another order, alone, or all but one of six
            close = [long for long in close if len(name) == len(long) > 3 or (len(name), len(long)) == (5, 6)]
        return close[0] if len(close) == 1 else ""


class Options:
    """The options of one command, and the words after them."""

    def __init__(self, command: str) -> None:
        self.command = command
        self.by_name: dict[str, list[tuple[Word, ...]]] = {}
        self.rest: tuple[Word, ...] = ()
        self.unresolved: dict[str, str] = {}
        self.problems: list[OptionProblem] = []
        self.assignments: list[Word] = []
        self.unrecognised = ""
        """The first option that the command does not have."""
        self.last_flag = ""
        """The last option, where no value belongs to it."""

    def __contains__(self, name: object) -> bool:
        return name in self.by_name

    def word(self, *names: str) -> Word | None:
        """The last value of the first of these options that is given; None without one."""
        for name in names:
            if self.by_name.get(name) and self.by_name[name][-1]:
                return self.by_name[name][-1][0]
        return None

    @property
    def is_complete(self) -> bool:
        """False where options are not read, so that what is not given may be given after all."""
        return "options" not in self.unresolved

    def text(self, *names: str) -> str:
        """A value as text; empty where it is not given, and where it is unresolved, which is noted."""
        word = self.word(*names)
        if word is None:
            return ""
        if word.unresolved:
            self.unresolved[next(name for name in names if name in self.by_name)] = word.unresolved
            return ""
        return word.text

    def number(self, *names: str, least: int = 0, most: int = 9_999_999) -> int | None:
        """A whole number; None where it is not given, unresolved, or refused, which is noted."""
        text, word = self.text(*names), self.word(*names)
        if not text and (word is None or word.unresolved):
            return None
        value = int(text) if re.fullmatch(r"\+?[0-9]{1,9}", text, re.ASCII) else -1
        if least <= value <= most:
            return value
        self.refuse(names, filled("a whole number from {0} to {1}", least, most))
        return None

    def texts(self, *names: str) -> list[Word]:
        return [word for name in names for values in self.by_name.get(name, ()) for word in values[:1]]

    def refuse(self, names: Iterable[str], expected: str) -> None:
        """Notes a value that the launcher refuses, once for each option."""
        name = next((name for name in names if name in self.by_name), "")
        word = self.word(name)
        if not any(problem.option == _dashed(name) for problem in self.problems):
            value = printable(word.text, 80) if word else ""
            self.problems.append(OptionProblem(self.command, _dashed(name), value, expected))

    def forgive(self, names: Iterable[str]) -> None:
        """Drops what was noted of options that have these names."""
        forgiven = {f"--{name}" for name in names}
        self.problems = [problem for problem in self.problems if problem.option.replace("_", "-") not in forgiven]

    def refuse_unlisted(self, table: OptionTable) -> None:
        """Notes the values that the table's columns ``choices``, ``numbers`` and ``usual`` do not allow."""
        for name, allowed in [*table.choices.items(), *table.modified.items()]:
            text = self.text(name)
            if text not in ("", *allowed) and re.split("[:=]", text.lower())[0] not in table.modified.get(name, ()):
                self.refuse([name], ", ".join(allowed))
        for name, allowed in table.usual.items():
            value = self.text(name).lower()
            if value not in ("", *allowed) and (value in table.mistaken.get(name, ()) or is_near(value, allowed)):
                self.refuse([name], ", ".join(allowed))
        self._refuse_numbers(table)
        for name in table.devices.split():
            hosts = [part.partition(":") for part in self.text(name).split("@")]
            lists = [devices if colon else first for first, colon, devices in hosts if colon or name in _OF_THIS_HOST]
            is_own = name in _OF_THIS_HOST  # which alone may be all
            faults = {wrong_devices(text if is_own else f"{text},") for text in lists if not (is_own and text == "all")}
            if expected := max(faults, default=""):
                self.refuse([name], expected)

    def _refuse_numbers(self, table: OptionTable) -> None:
        wrong_numbers = [name for name in table.numbers.split() if python_number(self.text(name) or "0") is None]
        for name in [*wrong_numbers, *(name for name in table.amounts.split() if _WITH_UNIT.search(self.text(name)))]:
            self.refuse([name], "a whole number")
        for name, least in table.least.items():
            if (value := self.text(name)) and not (is_number(value) and float(value) >= least):
                self.refuse([name], filled("a number from {0} on", f"{least:g}"))

    @property
    def value_of_flag(self) -> str:
        """``true`` of ``--flag true``, which a launcher of Python programs takes for the program."""
        value = self.rest[0].text if self.rest and self.last_flag else ""
        return value if value.lower() in ("true", "false") else ""

    def refuse_value_of_flag(self) -> None:
        if value := self.value_of_flag:
            expected = filled("no value: it is a flag, and {0} becomes the program", value)
            self.problems.append(OptionProblem(self.command, _dashed(self.last_flag), value, expected))

    def refuse_dash(self) -> None:
        """Notes an option with a dash of typography, as word processors and web pages write it: it is the program."""
        option, value = ([word.text for word in self.rest[:2]] + ["", ""])[:2]
        if self.unrecognised.lstrip("-").startswith(tuple(_TYPOGRAPHY)):
            option, value = self.unrecognised, ""
        name = option.lstrip("-" + _TYPOGRAPHY)
        if name != option:
            right = "--" + printable(name.lstrip("-"), 80)
            self.problems.append(OptionProblem(self.command, printable(option, 80), printable(value, 80), right))

    def refuse_interpreter(self) -> None:
        """Notes an interpreter before the program, of a launcher that runs Python itself."""
        word = self.rest[0] if self.rest else None
        if word and not word.unresolved and re.fullmatch(r"(?:/\S{1,200}/)?python[0-9.]{0,8}", word.text, re.ASCII):
            expected = filled("a Python program such as train.py: {0} starts Python for it", self.command)
            self.problems.append(OptionProblem(self.command, "PROGRAM", printable(word.text, 80), expected))

    def refuse_swallowed(self, before: tuple[Word, ...]) -> None:
        """Notes an option whose value is the interpreter before the program, of a launcher that runs any program."""
        words = [word.text for word in before]
        if words[-1:] in (["python"], ["python3"]) and self.rest and re.fullmatch(r"[\w.-]+\.py", self.rest[0].text):
            option = next((text for text in reversed(words[:-1]) if text.startswith("-")), self.command)
            expected = filled("a value before {0}", words[-1])
            self.problems.append(OptionProblem(self.command, printable(option, 80), words[-1], expected))

    def refuse_program(self, module: str, *, is_optional: bool) -> None:
        """Notes what is no program of Python. ``module``: the option by which it is a module; ``is_optional``: others
        can be started, too.
        """
        self.refuse_value_of_flag()
        self.refuse_dash()
        if module in self:
            self._refuse_file_as_module(module)
        elif is_optional:
            self.refuse_interpreter()

    def _refuse_file_as_module(self, option: str) -> None:
        """Notes a path in the place of a module's name, ``-m tools/train.py``."""
        word = self.rest[0] if self.rest else None
        path = r"(?:[\w.-]{0,99}/)*[\w.-]{1,99}\.py|[\w./-]{1,99}/\w{1,99}"
        if word and not word.unresolved and re.fullmatch(path, word.text):
            name = re.sub(r"^(?:\.?/)+|\.py$", "", word.text).replace("/", ".")
            expected = filled("the name of a module, such as {0}", name)
            self.problems.append(OptionProblem(self.command, _dashed(option), printable(word.text, 80), expected))

    def need(self, name: str, expected: str) -> None:
        """Notes an option that is not given, and without which the launcher ends unless a configuration gives it."""
        self.problems.append(OptionProblem(self.command, f"--{name.replace('-', '_')}", "", expected, "wanted"))

    def as_texts(self) -> dict[str, tuple[str, ...]]:
        return {
            name: tuple(printable(word.text, 4096) for values in by_name for word in values)
            for name, by_name in self.by_name.items()
        }


def _dashed(name: str) -> str:
    return f"--{name}" if len(name) > 1 else f"-{name}"


def split_options(command: str, argv: tuple[Word, ...], table: OptionTable) -> Options:
    """The options before the first word that is none. What is not one of the table's is noted.

    An unresolved word in the place of an option may be several options: it is noted, and taken for no program, unless
    only the folder of a program is not resolved.
    """
    result = Options(command)
    position = 0
    while position < len(argv):
        word = argv[position]
        text = word.text
        if text == "--" and not word.unresolved:
            position += 1
            break
        if word.may_be_several and not text.startswith("-") and not text.endswith(".py"):
            result.unresolved[filled("options {0}", len(result.unresolved)) if result.unresolved else "options"] = (
                word.unresolved
            )
            position += 1
            continue
        if table.assignments_first and re.match(r"[A-Za-z_][A-Za-z0-9_]*=", text, re.ASCII):
            result.assignments.append(word)
            position += 1
            continue
        if not text.startswith("-") or text == "-":
            break
        position += _take(result, argv, position, table)
        if table.last & result.by_name.keys():
            break
    result.rest = argv[position:]
    return result


def _take(result: Options, argv: tuple[Word, ...], position: int, table: OptionTable) -> int:
    """Notes the option at a position. Returns how many words it is."""
    word = argv[position]
    is_long = word.text.startswith("--")
    body = word.text[2:] if is_long else word.text[1:]
    with_dash = re.match(r"[a-z][a-z_-]{3,}", body) if not is_long and table.joins_letters else None
    if with_dash and with_dash[0].replace("_", "-") in table.word_counts:
        result.problems.append(OptionProblem(result.command, f"-{with_dash[0]}", "", f"--{with_dash[0]}"))
        is_long = True
    if not is_long and table.joins_letters and not table.aliases.get(body.partition("=")[0].replace("_", "-")):
        return _take_letters(result, argv, position, table)
    spelled, equals, value = body.partition("=")
    name = table.canonical(spelled)
    is_short = table.is_of_dashes and len(spelled) == 1 and spelled in table.aliases
    if (is_long or not table.joins_letters) and (not name or is_short):
        result.unrecognised = result.unrecognised or ("" if table.joins_letters else word.text)
        following = argv[position + 1 : position + 2]
        name = _meant(result, word.text.partition("=")[0], value or "".join(word.text for word in following), table)
        if not name and len(several := table.begun(spelled)) > 1:
            return 1 if equals else 1 + table.word_counts[several[0]]
    if not name:
        return _unrecognised(result, argv, position)
    if equals:
        if not is_long and table.is_of_dashes:
            refused = printable(f"={value}", 80)
            result.problems.append(OptionProblem(result.command, f"-{spelled}", refused, printable(value, 80)))
        _add(result, name, (word._replace(text=value),))
        return 1
    count = table.word_counts[name]
    taken = argv[position + 1 : position + 1 + count]
    if len(taken) < count:
        result.problems.append(OptionProblem(result.command, _dashed(name), "", "a value after it"))
    _add(result, name, taken)
    return 1 + len(taken)


def _meant(result: Options, option: str, value: str, table: OptionTable) -> str:
    """Notes a long option that is misspelt, or the beginning of several; the one that is meant, or empty."""
    spelled = option.lstrip("-")
    near, several = table.aliases.get(spelled, "") or table.nearest(spelled), table.begun(spelled)
    if near or len(several) > 1:
        expected = f"-{spelled}" if spelled in table.aliases else _dashed(table.spelled(near))
        if not near:
            expected = filled("the whole name, as {0}", ", ".join(f"--{table.spelled(long)}" for long in several[:8]))
        refused = printable(value, 80) if table.word_counts[near or several[0]] else ""
        result.problems.append(OptionProblem(result.command, printable(option, 80), refused, expected))
    return near


def _take_letters(result: Options, argv: tuple[Word, ...], position: int, table: OptionTable) -> int:
    word = argv[position]
    for index, letter in enumerate(word.text[1:], 1):
        name = table.canonical(letter)
        if table.word_counts.get(name) == 1:
            joined = word.text[index + 1 :]
            if joined:
                _add(result, name, (word._replace(text=joined.removeprefix("=")),))
                return 1
            taken = argv[position + 1 : position + 2]
            if not taken:
                result.problems.append(OptionProblem(result.command, f"-{letter}", "", "a value after it"))
            _add(result, name, taken)
            return 1 + len(taken)
        if not name:
            return _unrecognised(result, argv, position)
        _add(result, name, ())
    return 1


def _unrecognised(result: Options, argv: tuple[Word, ...], position: int) -> int:
    """Notes an option that is not in the table. Where the next word may be its value, nothing after it is read."""
    text, before = argv[position].text, result.unresolved.get("options")
    if re.match("--(?:no-)?container-[a-z-]{1,40}=", text) and result.command in ("srun", "sbatch", "salloc"):
        return 1  # of a newer Pyxis, whose options concern the container alone
    result.unrecognised = result.unrecognised or text
    word = printable(text, 80)
    result.unresolved.setdefault("options", filled("{0} is not among the options that doctor reads", word))
    following = argv[position + 1].text if position + 1 < len(argv) else "-"
    if "=" in text or following.startswith("-"):
        return 1
    result.unresolved.setdefault("program", before or filled("stands after {0}, which doctor does not read", word))
    return len(argv) - position


def _add(result: Options, name: str, values: tuple[Word, ...]) -> None:
    by_name = result.by_name.setdefault(name, [])
    result.last_flag = "" if values else name
    if len(by_name) < _MOST_VALUES:
        by_name.append(values)


def values_of(line: str, options: list[str]) -> list[str]:
    """The values that a launch line gives to options: ``x`` of ``--resume=x``."""
    names = "|".join(re.escape(name).replace("_", "[-_]") for name in options)
    return [text.strip("'\"") for text in re.findall(rf"(?<!\S)--(?:{names})[= ](\S{{1,4096}})", line) if names]
