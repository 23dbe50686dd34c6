"""The simple commands of shell text, in order, each with the environment that it would have. Nothing is run. Pure.

What a branch or a loop assigns is unresolved after it, and what a loop assigns also inside of it. The body of a
function is followed where the text calls it by its name; else it counts as a branch. Of text that is sourced, a file
that the caller can read is followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from doctor.engine.texts import filled
from doctor.job.shell.blocks import BRANCH, IGNORED, LOOPS, OPENING, PREFIXES, TESTS, Block, is_arithmetic, rounds_of
from doctor.job.shell.flow import Flow, Functions, behind_comments, without_end
from doctor.job.shell.name_mistakes import command_mistakes, name_mistakes, test_mistakes, unclosed, value_mistakes
from doctor.job.shell.tokens import Token, UnreadableShell, tokenize
from doctor.job.shell.variables import ARGUMENTS, MAX_ELEMENTS, MOST_EXPORTED, ShellVariables, assigned_name
from doctor.job.shell.word import ShellCommand, ShellText, UnreadText, Word, beside_script, unread, with_input

ReadFile = Callable[[str], str | None]
_MOST_COMMANDS, _MOST_UNREAD = 2000, 64
_DEEPEST = 32
_ELEMENT = re.compile(r"([A-Za-z_]\w{0,200})\[[^\]]{0,200}\]\+?=", re.ASCII)
_CHANGED = re.compile(
    r"\b([A-Za-z_]\w{0,99})[ \t]{0,9}(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)[ \t]{0,9}([A-Za-z_]\w{0,99})",
    re.ASCII,
)
"""Variables that arithmetic changes."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_DECLARATIONS = ("export", "declare", "typeset", "readonly", "local")
_DEEPEST_TEXT = 4
"""Of ``eval``, sourced files and functions in one another."""
_MOST_FOLLOWED = 20_000
"""Words of functions that are followed, all calls together."""


def evaluate(
    text: str,
    environ: Mapping[str, str | Word] | None = None,
    arguments: tuple[Word, ...] | None = None,
    open_parts: tuple[Word, ...] = (),
    read_file: ReadFile = lambda _: None,
) -> ShellText:
    r"""The commands of shell text. ``environ``: what is inherited. Never raises.

    ``arguments``: what the script is started with; None: not known. ``open_parts``: what an outer shell puts into the
    text, and is not known; in the text stands its number between two zero bytes. ``read_file``: the text of a file, by
    a relative path; None where it is not here.

    >>> [command] = evaluate("A=2\nexport B=$((A * 4))\ntorchrun --nnodes $B $(pwd)").commands
    >>> [word.text for word in command.argv], dict(command.environ), command.argv[3].unresolved
    (['torchrun', '--nnodes', '8', '$(pwd)'], {'B': '8'}, '$(pwd)')
    """
    try:
        tokens = tokenize(text)
    except UnreadableShell as error:
        lines = text.splitlines()[error.line - 1 : error.line]
        return ShellText((), (unread(lines[0] if lines else "", error.reason, error.line),), refused=True)
    if (end := without_end(text))[0]:
        return ShellText((), (unread(text.split("\n")[end[0] - 1], end[1], end[0]),), refused=True)
    loops: Mapping[int, set[str]] = {}
    for _ in range(2):
        shell = _Evaluation(tokens, ShellVariables(environ or {}, arguments, open_parts), loops, read_file)
        shell.run()
        loops = shell.assigned_in_loops
    found = name_mistakes(text, shell.variables, shell.commands, shell.functions.bodies)
    mistakes = tuple(behind_comments(text, (*shell.mistakes[:_MOST_UNREAD], *found)))
    steps, names = tuple(shell.flow.steps[:_MOST_COMMANDS]), frozenset(shell.variables.assigned)
    return ShellText(tuple(shell.commands), tuple(shell.unread), tuple(shell.sourced), mistakes, steps, assigned=names)


class _Evaluation:
    def __init__(
        self, tokens: list[Token], variables: ShellVariables, loops: Mapping[int, set[str]], read_file: ReadFile
    ) -> None:
        self.word_texts = {token.keyword for token in tokens}
        self.functions = Functions(tokens)
        self.left, self.read_file, self.variables, self.loops = _MOST_FOLLOWED, read_file, variables, loops
        self.assigned_in_loops: dict[int, set[str]] = {}
        """Names by the number of the loop, in the order of the text."""
        self.commands: list[ShellCommand] = []
        self.unread: list[UnreadText] = []
        self.blocks: list[Block] = []
        self.loop_numbers: list[int] = []
        self.after = ""
        """The operator before this command, where it makes the command conditional."""
        self.export_all = self.last_is_test = self.argument_changes = False
        """``set`` or ``shift`` was read."""
        self.depth, self.function_follows, self.loop_count = 0, False, 0
        self.sourced: list[str] = []
        self.followed_lines: set[int] = set()
        """Lines that run another text, whose functions have no line of their own."""
        self.flow = Flow()
        self.mistakes: list[tuple[str, str, str]] = []

    def run(self) -> None:
        self._run(self.functions.tokens)
        self._close_all(0)
        while self.functions.not_called:
            self._in_function(self.functions.not_called.pop(next(iter(self.functions.not_called))))

    def _run(self, tokens: list[Token]) -> None:
        for command, operator in self._simple_commands(tokens):
            line = command[0].line if command else 0
            if reason := self._too_much():
                self._note("...", reason, line)
                return
            if command:
                self.flow.operator = "||" if command[0].keyword == "!" else operator
                argv = self._command(command)
                self.flow.note(line, argv, len(self.commands), is_certain=not (self.blocks or self.after))
            self.after = {"||": "||", "&&": "&&" if self.last_is_test else self.after}.get(operator, "")

    def _too_much(self) -> str:
        if len(self.commands) >= _MOST_COMMANDS:
            return filled("more than {0} commands", _MOST_COMMANDS)
        return filled("blocks nested deeper than {0}", _DEEPEST) if len(self.blocks) > _DEEPEST else ""

    def _simple_commands(self, tokens: list[Token]) -> Iterator[tuple[list[Token], str]]:
        command: list[Token] = []
        for token in tokens:
            if not token.operator:
                command.append(token)
                continue
            if token.operator in ("(", ")"):
                if token.operator == ")" and command and not self._in_pattern(command):
                    yield command, ";"
                    command = []
                command = self._paren(token, command)
                if command:
                    yield command, ";"
                if token.operator == ")" and self._in_case():
                    self.blocks[-1].in_pattern = False
            elif not (command and self._in_pattern(command)):
                yield command, token.operator
            if token.operator == ";;" and self._in_case():
                self._branch()
                self.blocks[-1].in_pattern = True
            command = []
        yield command, ";"

    def _in_pattern(self, command: list[Token]) -> bool:
        return self._in_case() and self.blocks[-1].in_pattern and command[0].keyword != "esac"

    def _in_case(self) -> bool:
        return bool(self.blocks) and self.blocks[-1].keyword == "case"

    def _paren(self, token: Token, command: list[Token]) -> list[Token]:
        """What of the words before a parenthesis is a command."""
        if self._in_case() and self.blocks[-1].in_pattern:
            return []
        if token.operator == "(":
            is_function = len(command) == 1 or (len(command) == 2 and command[0].keyword == "function")
            self._open("function(" if is_function else "(", token.line, certain=not is_function)
            return [] if is_function else command
        if self.blocks and self.blocks[-1].keyword in ("(", "function("):
            is_function = self.blocks[-1].keyword == "function("
            self._close()
            self.function_follows = is_function
        return command

    def _open(self, keyword: str, line: int, certain: bool) -> None:
        self.blocks.append(Block(keyword, line, certain and not (keyword == "{" and self.function_follows)))
        self.function_follows = False
        if keyword in LOOPS:
            number = self.loop_count
            self.loop_count += 1
            self.loop_numbers.append(number)
            for name in self.loops.get(number, ()):
                self.variables.forget(name, filled("set in a loop in line {0}", line))

    def _branch(self) -> None:
        """After one branch of several: its assignments are not those of the next."""
        block = self.blocks[-1]
        for name in block.recent:
            self.variables.forget(name, filled("set in a branch in line {0}", block.line))
        block.recent = set()

    def _close(self) -> None:
        block = self.blocks.pop()
        if block.keyword in LOOPS and self.loop_numbers:
            self.assigned_in_loops[self.loop_numbers.pop()] = set(block.assigned)
        if not block.certain:
            for name in block.assigned:
                self.variables.forget(name, filled("set in a branch in line {0}", block.line))
        if self.blocks:
            self.blocks[-1].assigned |= block.assigned
            self.blocks[-1].recent |= block.assigned

    def _command(self, command: list[Token]) -> list[Word]:
        """The words of the command, which is followed or added."""
        here = next((token.here for token in command if token.here is not None), None)
        files = [token for token in command if token.redirection in (">", ">|", ">>")]
        command = self._keywords([token for token in command if token.here is None and not token.redirection])
        if not command:
            return []
        self.last_is_test = command[0].keyword in TESTS or command[0].parts[:1] == () or is_arithmetic(command[0])
        self.variables.own_arguments = not (self.argument_changes or any(block.is_function for block in self.blocks))
        assignments: list[Token] = []
        while command and assigned_name(command[0]):
            assignments.append(command.pop(0))
        if not command:
            for token in assignments:
                self._assign(token)
            return []
        expanded: list[Word] = []
        for token in command:
            if token.elements is None:
                expanded += self.variables.expand(token.parts)
            if len(expanded) > 4 * MAX_ELEMENTS:
                self._note(command[0].keyword, filled("more than {0} words", 4 * MAX_ELEMENTS), command[0].line)
                return []
        expanded = with_input(expanded, self.variables.expand(here or ()))
        self.variables.write(expanded, files, here, is_certain=not self._is_conditional())
        name, line = expanded[0].text if expanded else "", command[0].line
        if name in _DECLARATIONS:
            self._declare(name, command[1:])
        elif name == "read" and (value := self.variables.read(expanded, here, assignments)):
            self._set(expanded[-1].text, value)
        elif name == "eval":
            self._eval(expanded, assignments, line)
        elif not (self._call(name, expanded, assignments, line) or self._builtin(name, expanded, line)):
            self._add(expanded, assignments, line)
        return expanded

    def _keywords(self, command: list[Token]) -> list[Token]:
        while command:
            keyword, line = command[0].keyword, command[0].line
            if keyword in PREFIXES:
                pass
            elif keyword in OPENING:
                self._open(keyword, line, certain=keyword == "{")
                if keyword in ("for", "select"):
                    self._counts(command)
                if keyword in ("for", "select", "case"):
                    return []
            elif keyword in OPENING.values():
                if self.blocks and OPENING.get(self.blocks[-1].keyword) == keyword:
                    self._close()
                return []
            elif keyword in BRANCH:
                if self.blocks:
                    self._branch()
            elif keyword == "function":
                self._open("function(", line, certain=False)
                self._close()
                self.function_follows = True
                command = command[1:]
            else:
                self.function_follows = False
                return command
            command = command[1:]
        return command

    def _counts(self, command: list[Token]) -> None:
        """The variable of a loop."""
        counted = command[1].parts[0].text if len(command) > 1 and is_arithmetic(command[1]) else ""
        changed = ("".join(groups) for groups in _CHANGED.findall(counted)) if counted else ()
        names = [*changed] or [token.keyword for token in command[1:2]]
        is_list = command[0].keyword == "for" and [token.keyword for token in command[2:3]] == ["in"]
        elements = [word for token in command[3:] for word in self._elements(token)] if is_list else []
        values = rounds_of(self.variables.with_numbers(counted), elements)
        for name in filter(_NAME.fullmatch, names[:MAX_ELEMENTS]):
            self._forget(name, filled("set by a loop in line {0}", command[0].line))
            self.blocks[-1].loops |= {name: values} if values else {}
            if len(elements) == 1 and ".." in elements[0].text.partition("\0")[2]:
                self._set(name, Word(elements[0].text.replace("\0", "{")))

    def _elements(self, token: Token) -> list[Word]:
        """The words of a loop's list; bash expands no braces with a variable in them: of ``{``, a zero byte."""
        brace = "{" if len(token.parts) == 1 else "\0"
        texts = [(word, word.text.replace("{", brace)) for word in self.variables.expand(token.parts)]
        return [word._replace(text=self.variables.with_numbers(text)) for word, text in texts]

    def _is_conditional(self) -> bool:
        return bool(self.after) or any(not block.certain for block in self.blocks)

    def _assign(self, token: Token) -> None:
        if name := assigned_name(token):
            self._set(name, self.variables.value_of(token))

    def _set(self, name: str, value: Word | tuple[Word, ...]) -> None:
        self.variables.assign(name, value)
        if self.export_all:
            self.variables.exported.add(name)
        self._mark(name)
        if self.after:
            self.variables.forget(name, "set on a condition")

    def _forget(self, name: str, reason: str) -> None:
        self.variables.forget(name, reason)
        self._mark(name)

    def _mark(self, name: str) -> None:
        if self.blocks:
            self.blocks[-1].assigned.add(name)
            self.blocks[-1].recent.add(name)

    def _declare(self, command: str, arguments: list[Token]) -> None:
        flags = "".join(token.keyword for token in arguments if token.keyword.startswith("-"))
        exports = (command == "export" and "n" not in flags) or "x" in flags
        before = ""
        self.mistakes += [(command, f"${name}=", f"{command} {name}=") for name in self.variables.expanded(arguments)]
        for number, token in enumerate(arguments):
            name = assigned_name(token)
            if name:
                self._assign(token)
            elif _NAME.fullmatch(token.keyword):
                name = token.keyword
            elif token.keyword.startswith("=") and before:
                value = token.keyword[1:] or "".join(after.keyword for after in arguments[number + 1 : number + 2])
                self.mistakes.append((command, f"{before} {token.keyword}", f"{command} {before}={value}"))
            self.mistakes += value_mistakes(command, arguments, number, exports, self.variables)
            before = name
            if name and exports:
                self.variables.exported.add(name)
            elif name and command == "export":
                self.variables.exported.discard(name)

    def _builtin(self, name: str, argv: list[Word], line: int) -> bool:
        """Whether the command changes nothing but the shell itself."""
        arguments = [word.text for word in argv[1:]]
        if name == "unset" and "-f" in arguments:
            self.functions.remove([] if self._is_conditional() else arguments)
        elif name == "unset":
            for variable in (word for word in arguments if not word.startswith("-")):
                if self._is_conditional() or "[" in variable:
                    self._forget(variable.partition("[")[0], "unset on a condition")
                else:
                    self.variables.remove(variable)
                    self._mark(variable)
        elif name in ("read", "mapfile", "readarray", "getopts") or (name == "printf" and arguments[:1] == ["-v"]):
            for variable in filter(_NAME.fullmatch, arguments):
                self._forget(variable, filled("set by {0} in line {1}", name, line))
        elif name in ("set", "shift"):
            self.flow.set_options(arguments if name == "set" else (), is_sure=not (self.blocks or self.after))
            self.argument_changes |= name == "shift" or "--" in arguments
            self.export_all |= "-a" in arguments or "allexport" in arguments
        elif name in ("source", "."):
            self._source(name, arguments, line)
        elif name == "let" or name.startswith("((") or _ELEMENT.match(name):
            text = name.partition("[")[0] if _ELEMENT.match(name) else " ".join([name, *arguments])
            for variable in re.findall(_NAME, text)[:MAX_ELEMENTS]:
                self._forget(variable, filled("set in line {0}", line))
        elif name not in IGNORED:
            return False
        self.mistakes += test_mistakes(argv)
        return True

    def _source(self, command: str, arguments: list[str], line: int) -> None:
        """Follows a file beside the script, or in the folder in which it runs."""
        path = beside_script("".join(arguments[:1]))
        text = self.read_file(path) if re.fullmatch(r"(?!/)[\w./-]{1,200}", path, re.ASCII) else None
        if text is None:
            self._note(" ".join([command, *arguments]), "is not followed", line)
        else:
            self.sourced.append(path)
            self._follow(text, f"{command} {path}", line)

    def _eval(self, argv: list[Word], assignments: list[Token], line: int) -> None:
        """Follows the words of ``eval`` as text of this shell."""
        text = " ".join(word.text for word in argv[1:])
        if assignments or (len(argv) > 1 and argv[1].text.startswith(("$(", "`"))):
            self._note(" ".join(("eval", text)), "is not followed", line)
        else:
            self._follow(text, " ".join(("eval", text)), line)

    def _follow(self, text: str, command: str, line: int) -> None:
        """Runs another text in this shell."""
        try:
            tokens = [token._replace(line=line) for token in tokenize(text)]
        except UnreadableShell as error:
            self._note(command, error.reason, line)
            return
        if self.depth >= _DEEPEST_TEXT:
            self._note(command, "is not followed", line)
            return
        self.followed_lines.add(line)
        self.word_texts.update(token.keyword for token in tokens)
        self._nested(self.functions.add(tokens, self.word_texts))

    def _nested(self, tokens: list[Token]) -> None:
        self.depth, after, depth = self.depth + 1, self.after, len(self.blocks)
        if self.after:
            self._open("function(", tokens[0].line if tokens else 0, certain=False)
        with self.flow.within():
            self._run(tokens)
            self._close_all(depth)
        self.after = after
        self.depth -= 1

    def _close_all(self, depth: int) -> None:
        if not self._too_much():
            self.mistakes += unclosed(self.blocks[depth:])
        while len(self.blocks) > depth:
            self._close()

    def _in_function(self, body: list[Token]) -> None:
        """Of a function that is not followed: as a branch."""
        self._open("function(", body[0].line if body else 0, certain=False)
        self._nested(body)
        self._close()

    def _call(self, name: str, argv: list[Word], assignments: list[Token], line: int) -> bool:
        """Runs the body of a function with its arguments; False where there is no such function, or not yet."""
        if (body := self.functions.body(name, line, self.depth > 0)) is None:
            return False
        self.left -= len(body)
        if self.depth >= _DEEPEST_TEXT or self.left < 0:
            return True  # its body stands among those that are not called
        self.functions.not_called.pop(name, None)
        if body and body[0].line in self.followed_lines:
            body = [token._replace(line=line) for token in body]
        for token in assignments:
            self._declare("export", [token])
        values, changes, self.argument_changes = self.variables.values, self.argument_changes, False
        before = {key: values.pop(key) for key in ARGUMENTS if key in values}
        values |= {"@": tuple(argv[1:]), **dict(zip(ARGUMENTS[1:], argv[1:10], strict=False))}
        self._nested(body)
        self.argument_changes = changes
        self.variables.values = {key: value for key, value in values.items() if key not in ARGUMENTS} | before
        return True

    def _add(self, argv: list[Word], assignments: list[Token], line: int) -> None:
        before = self.commands[-1].line if self.commands else line
        self.mistakes += command_mistakes(argv, assignments, self.variables, line if line > before else 0)
        if len(self.variables.exported) > MOST_EXPORTED:
            self._note("...", filled("more than {0} exported variables", MOST_EXPORTED), line)
        exported = self.variables.exported_words(assignments)
        self.commands.append(
            ShellCommand(
                argv=tuple(argv),
                line=line,
                environ={name: word.text for name, word in exported.items() if not word.unresolved},
                unresolved={name: word.unresolved for name, word in exported.items() if word.unresolved},
                open_values={name: word for name, word in exported.items() if word.pieces},
                unset=frozenset(self.variables.unset - exported.keys()),
                conditional=self._is_conditional(),
                is_repeated=not (self.after or {"break", "continue"} & self.word_texts)
                and all(block.certain or block.keyword in LOOPS for block in self.blocks),
                loops={name: loop for block in self.blocks for name, loop in block.loops.items()},
                operator="" if self.depth or any(b.keyword not in LOOPS for b in self.blocks) else self.flow.operator,
                written=self.variables.written,
            )
        )

    def _note(self, text: str, reason: str, line: int) -> None:
        if len(self.unread) < _MOST_UNREAD:
            self.unread.append(unread(text, reason, line))
