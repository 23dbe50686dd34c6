"""What keeps a script from its launch line, with bash beside: what is said to be left out never runs."""

from __future__ import annotations

import subprocess

import pytest

from doctor.job.job_script import read_job_script
from doctor.job.shell.reach import outcome
from doctor.job.shell.word import Word, literal_words

RUN = "torchrun --standalone train.py"
LEFT_OUT = {
    f"go() {{\n  return 0\n  {RUN}\n}}\ngo": ("return", "in line 2"),
    f"go() {{ true && return; {RUN}; }}\ngo": ("return", "in line 1"),
    f"go\ngo() {{\n  {RUN}\n}}": ("go()", "called in line 1 alone"),
    f"go() {{\n  {RUN}\n}}\nunset -f go\ngo": ("go()", "called in line 4 alone"),
    f"for s in 1 2; do\n  break\n  {RUN}\ndone": ("break", "in line 2"),
    f"for s in 1; do continue; {RUN}; done": ("continue", "in line 1"),
    f"NONE=\nfor s in $NONE; do\n  {RUN}\ndone": ("for", "of line 2, which leaves it out"),
    f"while false; do {RUN}; done": ("while", "of line 1, which leaves it out"),
    f"until true; do {RUN}; done": ("until", "of line 1, which leaves it out"),
    f"MODE=test\nif [ $MODE = train ]; then\n  {RUN}\nfi": ("if", "of line 2, which leaves it out"),
    f"if ! [[ 2 -lt 1 ]]; then\n  true\nelse\n  {RUN}\nfi": ("if", "of line 3, which leaves it out"),
    f"if true; then exit 0; elif true; then {RUN}; fi": ("if", "of line 1, which leaves it out"),
    f"if test -e /; then\n  exit 1\n  {RUN}\nfi": ("exit", "in line 2"),
    f"false && {RUN}": ("&&", "of line 1, which leaves it out"),
    f"[ -z '' ] || {RUN}": ("||", "of line 1, which leaves it out"),
    f"true && false && true && {RUN}": ("&&", "of line 1, which leaves it out"),
    f"( exit 0; {RUN} )": ("exit", "in line 1"),
}
"""By script: what leaves its launch line out."""
REACHED = (
    f"return 0\n{RUN}",  # not in a function: an error, and bash goes on
    f"go() {{\n  [ -e /none ] && return\n  {RUN}\n}}\ngo",
    f"go() {{ return; }}\ngo\n{RUN}",
    f"go() {{\n  {RUN}\n}}\nunset -f other\ngo",
    f"go() {{\n  {RUN}\n}}\ngo\nunset -f go",
    f"main() {{\n  go\n}}\ngo() {{\n  {RUN}\n}}\nmain",
    f"break\n{RUN}",
    f"for s in 1 2; do\n  [ $s = 1 ] && continue\n  {RUN}\ndone",
    f"for s in 1; do break; done\n{RUN}",
    f"while true; do {RUN}; break; done",
    f"if [ 1 = 2 ]; then\n  true\nelif [ -e / ]; then\n  {RUN}\nfi",
    f"if [ -e /none ]; then exit 1; fi\n{RUN}",
    f"if ! false; then {RUN}; fi",
    f"if false | true; then {RUN}; fi",
    f"false || true && {RUN}",
    f"[ -e /none ] && false || {RUN}",
    f"[[ aa == a* ]] && {RUN}",
    f"(exit 1)\n{RUN}",
    f"exit | true\n{RUN}",
    f"true || return\n{RUN}",
    f"case a in\n  (a) {RUN};;\nesac",
    f"case b in\n  a) exit 1 ;;\n  b) {RUN} ;;\nesac",
    f"( case b in b) {RUN} ;;\nesac )",
)


def runs(script: str) -> bool:
    """Whether bash comes to the launch line."""
    told = f"torchrun() {{ echo RUNS; }}\n{script}\n"
    done = subprocess.run(["bash", "/dev/stdin"], input=told, capture_output=True, text=True, timeout=20, check=False)
    return "RUNS" in done.stdout


@pytest.mark.parametrize("script", LEFT_OUT)
def test_a_launch_line_that_the_shell_does_not_reach(script: str) -> None:
    assert not runs(script)
    [line] = read_job_script(script, {}, ()).launch_lines
    assert (line.problems[-1].option, line.problems[-1].value) == LEFT_OUT[script]


@pytest.mark.parametrize("script", REACHED)
def test_a_launch_line_that_it_reaches(script: str) -> None:
    assert runs(script)
    [line] = read_job_script(script, {}, ()).launch_lines
    assert not line.problems


def test_of_two_launch_lines_the_one_that_runs_is_read() -> None:
    script = f"N=1\nif [ $N = 1 ]; then\n  {RUN}\nelse\n  {RUN} --steps 4\nfi\n"
    for text, number in ((script, 3), (script.replace("N=1", "N=2"), 5)):
        [line] = read_job_script(text, {}, ()).launch_lines
        assert (line.line, line.problems) == (number, ())


def test_a_sourced_file_may_call_any_function() -> None:
    script = f"go\nsource calls.sh\ngo() {{ {RUN}; }}\n"
    [line] = read_job_script(script, {}, ()).launch_lines
    assert not line.problems


@pytest.mark.parametrize("text", ["[ -f x ]", "[ a", "[ 1x -eq 1 ]", "[[ a =~ a ]]", "[ ! -e x ]", "grep -q a b", ""])
def test_only_a_shell_knows(text: str) -> None:
    assert outcome(literal_words(text.split())) is None
    assert outcome((Word("["), Word("$A", "$A"), Word("="), Word("a"), Word("]"))) is None
