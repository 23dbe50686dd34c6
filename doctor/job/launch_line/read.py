"""Reads a launch line: launcher by launcher, from outside to inside, to the program. Pure, bounded, and never run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import comparable_excerpt, printable
from doctor.engine.texts import filled
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.launch_line import recipes
from doctor.job.launch_line.call_parts import Argv, Started, of_this_size, refuse_meeting
from doctor.job.launch_line.commands import (
    RUN_NO_WORDS,
    behind_program,
    launcher_rows,
    meant_module,
    module_rows,
    option_table,
    stays_here,
    wrapper_rows,
)
from doctor.job.launch_line.launcher_calls import environ_of_tasks, is_hydra, read_call
from doctor.job.launch_line.model import LaunchCall, LaunchLine, NotALaunchLine
from doctor.job.launch_line.options import split_options
from doctor.job.launch_line.recipes import is_launcher
from doctor.job.launch_line.wrappers import Unwrapped, assigned_first, left_out, not_passed, unwrap
from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.variables import with_open_parts
from doctor.job.shell.word import ShellCommand, Word, for_another_shell, known_text, literal_words
from doctor.job.variable_names import is_misspelt
from doctor.remote.runtime.rank_variables import RANK_VARIABLES

MAX_WORDS = 8192
MAX_CHARACTERS = 1 << 20
_DEEPEST = 24
_LONGEST_TEXT, _LONGEST_PREFIX = 4000, 4
_MOST_PROGRAMS = 64

_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
SHELL_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_OF_A_RANK = {rank for rank, _, _ in RANK_VARIABLES} - {"SLURM_PROCID"} | {"SLURM_STEP_ID"}
"""Variables that a launcher has set: the line is that of one of its ranks. A batch script has SLURM_PROCID, too."""


def read_launch_line(
    argv: Sequence[str | Word],
    environ: Mapping[str, str] | None = None,
    *,
    text: str = "",
    unresolved: Mapping[str, str] | None = None,
    open_values: Mapping[str, Word] | None = None,
) -> LaunchLine:
    """The launch line of these words, as a program would get them after ``--``.

    ``environ``: the environment of the line, where launchers have defaults in variables, and ``bash -c`` reads others.
    ``text``: how the line is shown; its words, without one. ``unresolved``: variables of the line's environment that
    only a shell can compute, with their source text. ``open_values``: those with known parts. Raises: NotALaunchLine.

    >>> line = read_launch_line("srun -N4 torchrun --nnodes 4 --nproc-per-node=8 train.py --lr 1".split())
    >>> [call.launcher for call in line.launchers], line.world_size, line.program, line.arguments
    (['srun', 'torchrun'], 32, 'train.py', ('--lr', '1'))
    """
    literal = literal_words(argv)
    if not literal:
        raise NotALaunchLine("no words; expected a command such as torchrun --nnodes 2 train.py")
    if len(literal) > MAX_WORDS or sum(len(word.text) for word in literal) > MAX_CHARACTERS:
        raise NotALaunchLine(filled("more than {0} words or {1} MiB", MAX_WORDS, MAX_CHARACTERS >> 20))
    reader = _Reader(environ or {}, unresolved or {}, open_values or {})
    reader.read(literal)
    return reader.line(text or " ".join(word.text if word.unresolved else shlex.quote(word.text) for word in literal))


class _Reader:
    def __init__(
        self, environ: Mapping[str, str], not_known: Mapping[str, str], open_values: Mapping[str, Word]
    ) -> None:
        self.outside, self.not_known, self.open_values = environ, not_known, open_values
        self.launchers: list[LaunchCall] = []
        self.problems: list[OptionProblem] = []
        self.wrappers: list[str] = []
        self.fields: dict[str, Any] = {}
        self.environ: dict[str, str] = {}
        self.removed: set[str] = set()
        self.left_out: dict[str, tuple[str, str]] = {}
        self.passed: tuple[str, ...] = ()
        self.unresolved: dict[str, str] = {}
        self.computed: set[str] = set()
        self.paths: list[str] = []
        self.commands: list[tuple[str, str]] = []
        self.inherits = self.is_followed = True
        """What is started next is started here, in the environment that is known."""

    def line(self, text: str) -> LaunchLine:
        problems = [*self.problems, *(problem for call in self.launchers for problem in call.problems)]
        program, arguments = self.fields.get("program", ""), self.fields.get("arguments", ())
        not_known = {**self.not_known, **{key.removesuffix("="): text for key, text in self.unresolved.items()}}
        problems += [*not_passed(self.left_out, self.launchers), *refuse_meeting(self.launchers, not_known)]
        problems += behind_program(self.launchers, printable(program, 80), arguments)
        for call in self.launchers:
            for option, source in call.unresolved.items():
                if option == "program":
                    self.unresolved["program"] = source
                elif not option.endswith("="):
                    self.unresolved.setdefault(f"{call.launcher} {option}", source)
        return LaunchLine(
            text=printable(comparable_excerpt(text, _LONGEST_TEXT), 2 * _LONGEST_TEXT),
            launchers=tuple(self.launchers),
            wrappers=tuple(printable(wrapper, 80) for wrapper in self.wrappers),
            environ=self.environ,
            removed=frozenset(self.removed - self.environ.keys()),
            inherits_environment=self.inherits,
            passed=self.passed,
            unresolved=self.unresolved,
            computed_on_hosts=frozenset(self.computed),
            paths=tuple(self.paths),
            commands=tuple(self.commands),
            problems=tuple(of_this_size(problems, self.launchers)),
            **self.fields,
        )

    def read(self, argv: tuple[Word, ...], depth: int = 0) -> None:
        """Follows the chain to the program. Fills the fields."""
        python = is_module = False
        self.argv = argv = self._assignments(argv)
        while True:
            depth += 1
            argv = self._assignments(argv)
            if not argv or depth > _DEEPEST:
                self.unresolved.setdefault("program", "too many commands in one another" if argv else "none is named")
                return
            argv = argv if python else self._behind_prefix(argv)
            if argv[0].unresolved:
                self._unresolved_program(argv, "python3" if python else "", is_module)
                return
            name = argv[0].text.rpartition("/")[2]
            started = None if python else self._launcher(name, argv)
            if started:
                self._enter(started, argv[0].text)
                argv, python, is_module = started.argv, started.runs_python, started.is_module
                if python and (not argv or is_launcher(argv[0])):
                    python = False
                continue
            if not python and _PYTHON.fullmatch(name):
                inner = self._python(argv)
                if inner is None:
                    return
                self._enter(inner)
                argv, python, is_module = inner.argv, inner.runs_python, inner.is_module
                if argv and not is_module and is_launcher(argv[0]):
                    python = False  # the launcher's own script, as in /proc
                continue
            unwrapped = None if python else unwrap(name, argv[1:], environ_of_tasks(self._variables(), self.launchers))
            if unwrapped:
                argv = self._unwrap(unwrapped, depth)
                if not argv:
                    return
                continue
            if python or name not in (*SHELLS, recipes.MINDFORMERS) or not self._shell(argv, depth):
                self._program(argv, "python3" if python else "", is_module)
            return

    def _command(self, argv: Argv) -> None:
        """Notes the first of these words as one that is started, by the innermost launcher so far."""
        if self.is_followed and argv and not argv[0].unresolved:
            starter = self.launchers[-1].launcher if self.launchers else ""
            self.commands.append((printable(argv[0].text, 400), starter))
            if not (starter or "interpreter" in self.fields):
                self.fields["before"] = tuple("$" if word.unresolved else word.text for word in self.argv[: -len(argv)])

    def _other_program(self, argv: Argv) -> None:
        """Notes what a launcher starts beside its first program, also a file that Python runs."""
        reader = _Reader({}, {}, {})
        reader.launchers, reader.is_followed = self.launchers[:1], self.is_followed
        reader.read(argv, _DEEPEST - _LONGEST_PREFIX)
        self.commands += reader.commands
        program = reader.fields.get("program", "")
        if program.endswith(".py") and reader.is_followed and not reader.unresolved:
            self.commands.append((printable(os.path.join(".", program), 400), self.launchers[-1].launcher))

    def _behind_prefix(self, argv: tuple[Word, ...]) -> tuple[Word, ...]:
        """What follows unresolved words that may be a prefix such as ``$PROFILER``, where a launcher or Python does."""
        for position, word in enumerate(argv[:_LONGEST_PREFIX]):
            if not word.unresolved:
                if not position or not (is_launcher(word) or _is_python(word)):
                    return argv
                self.wrappers.append(argv[0].text)
                return argv[position:]
            if not word.may_be_several:
                return argv
        return argv

    def _assignments(self, argv: Argv) -> Argv:
        *assigned, rest = assigned_first(argv)
        self._set(*assigned)
        return rest

    def _set(self, environ: Mapping[str, str], unresolved: Mapping[str, str]) -> None:
        set_anew = {*environ, *unresolved}
        self.left_out = {name: by for name, by in self.left_out.items() if not {name, f"{name}="} & set_anew}
        self.environ.update(environ)
        for key, source in unresolved.items():
            self.unresolved[key] = source
            self.environ.pop(key.removesuffix("="), None)
        for name in environ:
            self.unresolved.pop(f"{name}=", None)

    def _restrict(self, inherits: bool, passed: tuple[str, ...]) -> None:
        """Only what is set from here on, and the names that are passed, reaches the program."""
        if inherits:
            return
        passed = tuple(name for name in passed if self.inherits or name in self.passed or name in self.environ)
        self.passed = tuple(name for name in passed if name not in self.environ)
        self.environ = {name: value for name, value in self.environ.items() if name in passed}
        self.unresolved = {
            key: source for key, source in self.unresolved.items() if not key.endswith("=") or key[:-1] in passed
        }
        self.inherits = False

    def _launcher(self, name: str, argv: tuple[Word, ...]) -> Started | None:
        self._command(argv)
        rows = launcher_rows()
        row, rest = rows.get(name), argv[1:]
        subcommands = row.subcommands.get(name) if row else recipes.SUBCOMMANDS.get(name)
        if row is None and subcommands is None:
            return None
        if subcommands:
            following = rest[0].text if rest else ""
            meant = next((word for word in subcommands if following == word or is_misspelt(following, word)), "")
            if not meant:
                return None
            if meant != following:
                self.problems.append(OptionProblem(name, printable(following, 80), "", meant))
            name, rest = f"{name} {meant}", rest[1:]
        environ = {**(self.outside if self.inherits else {}), **self.environ}
        open_sources = {key[:-1]: text for key, text in self.unresolved.items() if key.endswith("=")}
        not_known = {key: f"\0{text}" for key, text in {**self.not_known, **open_sources}.items()}
        if row is None:
            return recipes.read(name, rest, {**environ, **not_known})
        if row.name == "torchrun":
            environ |= {key: text for key, text in not_known.items() if key.startswith("PET_")}
        if row.name in ("srun", "openmpi") and "MASTER_ADDR" in not_known:
            environ["MASTER_ADDR"] = not_known["MASTER_ADDR"]
        if name in ("mpirun", "mpiexec") and is_hydra(rest, environ):
            row = rows["mpiexec.hydra"]
        return read_call(row, name, rest, environ)

    def _enter(self, started: Started, path: str = "") -> None:
        call = started.call
        if call.launcher:
            self.launchers.append(call)
        if "/" in path and call.launcher in ONE_ON_EACH_HOST:
            self.paths.append(path)
        for other in started.others[:_MOST_PROGRAMS]:
            self._other_program(other)
        self._restrict(started.inherits_environment, call.passed)
        self._set(call.environ, {key: text for key, text in call.unresolved.items() if key.endswith("=")})

    def _python(self, argv: tuple[Word, ...]) -> Started | None:
        """What an interpreter runs; None where there is nothing to follow, which is noted."""
        interpreter = self.fields["interpreter"] = argv[0].text
        options = split_options("python", argv[1:], option_table("python"))
        none = LaunchCall(launcher="", command=interpreter)
        if re.fullmatch("-[A-Za-z]{1,3}", options.unrecognised):
            self.problems.append(OptionProblem(interpreter, options.unrecognised, "", "an option of Python"))
        if module := options.word("m"):
            return self._module(module, options.rest, interpreter)
        if "c" in options:
            self.unresolved.setdefault("program", "Python text after -c")
            self.fields["program"] = "-c"
            return None
        if not options.rest:
            self.unresolved.setdefault("program", next(iter(options.unresolved.values()), "none is named"))
            return None
        rest = options.rest
        dashes = next((at for at, word in enumerate(rest[:-1]) if word.text == "--" and is_launcher(rest[at + 1])), 0)
        if dashes and not self.launchers:  # a program that submits what stands behind --
            self.fields.pop("interpreter")
            self.wrappers.append(rest[0].text)
            return Started(none, tuple(map(for_another_shell, rest[dashes + 1 :])), inherits_environment=False)
        name = os.path.basename(rest[0].text)
        if (row := launcher_rows().get(name)) and row.modules:
            if name == rest[0].text:
                expected = filled("the path of a file: start {0} without {1} before it", name, interpreter)
                self.problems.append(OptionProblem(interpreter, "FILE", name, expected))
            started = self._launcher(name, rest)
            self.fields.pop("interpreter")
            return started
        return Started(none, rest, runs_python=True)

    def _module(self, module: Word, rest: Argv, interpreter: str) -> Started | None:
        """What ``-m`` starts, with the words behind it; None where its name is not known, which is noted."""
        if module.unresolved:
            self.unresolved.setdefault("program", module.unresolved)
            return None
        meant = meant_module(module.text)
        if row := module_rows().get(meant):
            self.fields.pop("interpreter", None)
            subcommand = {word.text for word in rest[:1]} & {*row.subcommands.get(meant, ())}
            environ = {**(self.outside if self.inherits else {}), **self.environ}
            if meant != module.text:
                self.problems.append(OptionProblem(interpreter, "-m", printable(module.text, 80), meant))
            return read_call(row, f"{interpreter} -m {meant}", rest[len(subcommand) :], environ)
        if server := recipes.SERVERS.get(module.text):
            return recipes.read(server, rest, {})
        return Started(LaunchCall(launcher="", command=interpreter), (module, *rest), runs_python=True, is_module=True)

    def _variables(self) -> dict[str, str]:
        """The names of those that a command has at this place."""
        outside = {*self.outside, *self.not_known, *self.open_values} if self.inherits else {*self.passed}
        return dict.fromkeys(outside | {*self.environ, *(key.removesuffix("=") for key in self.unresolved)}, "")

    def _unwrap(self, unwrapped: Unwrapped, depth: int) -> tuple[Word, ...]:
        self.wrappers.append(unwrapped.label)
        self.is_followed &= stays_here(unwrapped.label.partition(" ")[0])
        self.removed |= unwrapped.removed
        self.problems += unwrapped.problems
        self.left_out |= left_out(unwrapped, self._variables())
        self.environ = {name: text for name, text in self.environ.items() if name not in unwrapped.removed}
        self._restrict(unwrapped.inherits_environment, unwrapped.passed)
        self._set(unwrapped.environ, unwrapped.unresolved)
        if unwrapped.container:
            self.fields["container"] = printable(unwrapped.container, 200)
        if unwrapped.is_shell_text:
            hosts = () if unwrapped.open_host else unwrapped.hosts
            where: Any = {"unresolved": {"host": unwrapped.open_host}} if unwrapped.open_host else {"hosts": hosts}
            self.launchers += [LaunchCall(launcher="ssh", command=unwrapped.label, options=unwrapped.options, **where)]
            texts = [printable(text, 80) for text in hosts if "{" in text and ".." in text]  # `for i in {0..$N}`
            self.problems += [OptionProblem("ssh", "host", text, "a host without braces") for text in texts]
            self._shell_text(unwrapped.argv, depth)
            return ()
        if not unwrapped.argv:
            self.unresolved.setdefault("program", "none is named")
        elif "options" in unwrapped.unresolved and not unwrapped.container:  # `exec $LAUNCHER train.py`
            end = unwrapped.argv[0]
            if not (is_launcher(end) or _is_python(end) or (end.text, "") in wrapper_rows() or end.text in SHELLS):
                self.unresolved.setdefault("program", unwrapped.unresolved["options"])
        return unwrapped.argv

    def _shell(self, argv: tuple[Word, ...], depth: int) -> bool:
        """Follows ``bash -c TEXT`` and the launcher of MindFormers; of ``bash SCRIPT`` the script is the program."""
        if argv[0].text.endswith(recipes.MINDFORMERS):
            self._mindformers(argv, depth)
            return True
        options = split_options("bash", argv[1:], option_table("shell"))
        if "c" not in options:
            if options.rest and options.rest[0].text.endswith(recipes.MINDFORMERS):
                self._mindformers(options.rest, depth)
            elif options.rest:
                self._program(options.rest, argv[0].text, False)
            else:
                self.unresolved.setdefault("program", "none is named")
            return True
        self.wrappers.append(f"{argv[0].text} -c")
        self._shell_text(options.rest[:1], depth)
        return True

    def _shell_text(self, argv: tuple[Word, ...], depth: int) -> None:
        """Follows the command of a shell text that starts ranks, else its last one."""
        self.is_followed = False
        text, open_parts = with_open_parts(argv)
        environ = environ_of_tasks({**(self.outside if self.inherits else {}), **self.environ}, self.launchers)
        open_values = self.open_values if self.inherits else {}
        shell = evaluate(text, {**open_values, **environ}, open_parts=open_parts)
        for part in shell.unread:
            self.unresolved.setdefault(
                filled("line {0} of {1}", part.line, self.wrappers[-1])[:80], filled("{0}: {1}", part.text, part.reason)
            )
        command = _command_with_launcher(shell.commands)
        if command is None:
            source = next((word.unresolved for word in argv if word.unresolved), "no command in the text")
            self.unresolved.setdefault("program", source)
            return
        if self.launchers:  # computed on each host: what is left where all that the outer shell computes is known
            known = evaluate(text, {**dict.fromkeys(open_values, "0"), **environ}, None, (Word("0"),) * len(open_parts))
            inner = _command_with_launcher(known.commands) or command
            self.computed |= {word.unresolved for word in inner.argv} | set(inner.unresolved.values())
        self._set(command.environ, {f"{name}=": source for name, source in command.unresolved.items()})
        self.removed |= command.unset
        if command.conditional:
            self.unresolved.setdefault("condition", "the command stands in a branch or a loop")
        self.read(command.argv, depth)

    def _mindformers(self, argv: tuple[Word, ...], depth: int) -> None:
        """The msrun that MindFormers' own launcher script starts."""
        self.wrappers.append(argv[0].text)
        msrun = recipes.mindformers(argv[1:])
        if msrun is None:
            self.unresolved.setdefault("program", filled("{0} takes 1, 2, 6 or 9 words", recipes.MINDFORMERS))
            return
        self._shell_text(msrun, depth)

    def _unresolved_program(self, argv: tuple[Word, ...], interpreter: str, is_module: bool) -> None:
        if argv[0].text.endswith(".py"):  # its folder alone is not known
            self.unresolved.setdefault("folder of the program", argv[0].unresolved)
            self._program(argv, interpreter, is_module)
        else:
            self.unresolved.setdefault("program", argv[0].unresolved)

    def _program(self, argv: tuple[Word, ...], interpreter: str, is_module: bool) -> None:
        is_python = argv[0].text.endswith(".py") or _is_python(Word(interpreter))
        if not argv[0].text:
            self.unresolved.setdefault("program", "an empty word")
        elif not (self.launchers or _OF_A_RANK & self.outside.keys() or is_python):
            is_script = interpreter or argv[0].text.endswith(SHELL_SCRIPTS)
            why = filled("{0} is no launcher that doctor knows", argv[0].text)
            if is_script:
                why = filled("{0} is a shell script, which --job-script reads", argv[0].text)
            self.unresolved.setdefault("program", why)
        self.fields["program"] = argv[0].text
        if interpreter:
            self.fields.setdefault("interpreter", interpreter)
        self.fields["is_module"] = is_module
        self.fields["arguments"] = tuple(word.text for word in argv[1:])
        self.fields["unresolved_arguments"] = frozenset(
            position for position, word in enumerate(argv[1:]) if word.unresolved
        )


def _is_python(word: Word) -> bool:
    return _PYTHON.fullmatch(word.text.rpartition("/")[2]) is not None


def _command_with_launcher(commands: Sequence[ShellCommand]) -> ShellCommand | None:
    return next((command for command in commands if starts_ranks(command.argv)), commands[-1] if commands else None)


def starts_ranks(argv: Sequence[Word]) -> bool:
    """Whether a launcher, or a Python program, is among the first words of a command; quick, for choosing."""
    names = [word.text.rpartition("/")[2] for word in argv[:64] if not word.unresolved]
    if names[:1] and names[0] in RUN_NO_WORDS:
        return False
    rows = [wrapper_rows().get((name, "")) for name in names]
    if not {*names}.isdisjoint(SHELLS) or any(row and (row.is_remote or row.is_text or row.shell_text) for row in rows):
        texts = (text for word in argv[1:64] if " " in (text := known_text(word)))
        if any(starts_ranks(command.argv) for text in texts for command in evaluate(text, {}).commands):
            return True
    return any(
        name in launcher_rows()
        or name in recipes.SUBCOMMANDS
        or name in module_rows()
        or _PYTHON.fullmatch(name)
        or name.endswith((".py", recipes.MINDFORMERS))
        for name in names
    )
