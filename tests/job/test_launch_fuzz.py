"""Arbitrary words and scripts: no exception but the documented one, and no long time."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from doctor.job.job_script import NotAJobScript, read_job_script
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.shell import Word, evaluate
from doctor.watch.rehearsal.rank_text import TextRefused, with_stub
from tests.examples import examples

_LAUNCH_WORDS = """
torchrun srun mpirun mpiexec msrun accelerate launch deepspeed python python3 -m -c bash env -i docker run ssh
--nnodes --nnodes=2 2 4:2 -N4 -np -x A=1 : -- - --bogus --nproc_per_node gpu --rdzv-endpoint n1:1 [::1]:2 train.py
--export=ALL,A=1 -H a:1,b -genv torch.distributed.run numactl timeout 5 sudo -E --mca img kubectl exec
"""
_SHELL_PIECES = r"""
if |then |else |fi@|for |in |do@|done@|case |esac@|;;|export |A=|$A|${A:-|$((|))|$(|[[ | ]]|torchrun |srun |t.py |
<<EOF@|EOF@|A=(|function f |#SBATCH -N 2@|#PBS -l select=2@|unset A@|&& |bash -c |((|2>&1 |
"""
_ARGUMENTS = st.one_of(st.sampled_from(_LAUNCH_WORDS.split()), st.text(max_size=12))
_ANY_WORD = st.one_of(_ARGUMENTS, st.builds(Word, _ARGUMENTS, st.sampled_from(["", "$X"]), st.booleans()))
_PIECES = st.one_of(
    st.sampled_from("\n\n \t;&|(){}$'\"`\\<>#=*?[]!0129aAx"),
    st.sampled_from(_SHELL_PIECES.replace("\n", "").replace("@", "\n").split("|")),
)
_SCRIPTS = st.lists(_PIECES, max_size=60).map("".join)


def check(line: LaunchLine) -> None:
    """What must hold of every line."""
    assert len(line.text) <= 401
    assert line.world_size is None or line.world_size > 0
    assert line.nodes is None or line.nodes > 0
    assert all(isinstance(value, str) for value in line.environ.values())
    assert line.program or line.unresolved


@given(st.lists(_ANY_WORD, max_size=14))
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_words(parts: list[str | Word]) -> None:
    try:
        check(read_launch_line(parts, {"A": "1"}))
    except NotALaunchLine:
        assert not parts


@given(_SCRIPTS)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_scripts(text: str) -> None:
    try:
        script = read_job_script(text)
    except NotAJobScript:
        assert text.startswith("#!")
        return
    for line in script.launch_lines:
        check(line)


@given(_SCRIPTS)
@example("unset A\n$A")
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
def test_arbitrary_text_of_ranks(text: str) -> None:
    with suppress(TextRefused):
        check(with_stub(text, [], {}, "stub.py", "", "").line)


@given(st.text(max_size=400))
@settings(max_examples=examples(100), deadline=None)
def test_arbitrary_text(text: str) -> None:
    try:
        read_job_script(text)
    except NotAJobScript:
        assert "\0" in text or text.startswith("#!")


BOMBS = {
    "doubling": "A=xxxxxxxx\n" + "A=$A$A\n" * 5000 + "torchrun $A\n",
    "doubling arrays": "A=(x x)\n" + "A=(${A[@]} ${A[@]})\n" * 2000 + "torchrun ${A[@]}\n",
    "parentheses": "$(" * 100_000,
    "braces": "${A:-" * 100_000,
    "nested defaults": "c " + "${A:-" * 2000 + "}" * 2000,
    "blocks": "{ A=1;\n" * 50_000,
    "loops": "for i in 1; do A=1;\n" * 30_000,
    "branches": "case x in\n" + "".join(f"{i}) A{i}=1;;\n" for i in range(40_000)) + "esac\ntorchrun t.py\n",
    "exports": "".join(f"export A{i}=1; torchrun t.py\n" for i in range(25_000)),
    "quotes": "c " + "'a'\"b\"\\c" * 100_000,
    "heredocs": "cat <<E\n" * 60_000,
    "arithmetic": "c $((" + "(" * 300 + "1" + ")" * 300 + "))\n" + "c $((9**9**9))\n",
    "commas": "c {" + "," * 500_000,
    "words": "torchrun " + "a " * 400_000,
    "shells": "bash -c '" * 50_000,
    "folders": "".join(f"cd /a{i}\nulimit -n {i}\n" for i in range(900)) + "torchrun t.py\n" * 256,
    "texts within": ": " + " ".join(f"w{i}" for i in range(120_000)) + "\n" + "eval x\n" * 1900 + "torchrun t.py\n",
    "joined": "cd a && " * 1900 + "torchrun t.py\n",
    "written": "set -e\n" + "".join(f"pwd > /a/{i}\n" for i in range(1700)) + "torchrun t.py\n" * 256,
    "operators": "&|;()" * 150_000,
}


@pytest.mark.sample
@pytest.mark.parametrize("name", BOMBS)
def test_time_is_linear(name: str) -> None:
    began = time.process_time()
    read_job_script(BOMBS[name][: 1 << 20])
    assert time.process_time() - began < 30


def test_deep_shells_in_one_line() -> None:
    text = "torchrun t.py"
    for _ in range(12):
        text = "bash -c " + "'" + text.replace("'", "'\\''") + "'"
        if len(text) > 500_000:
            break
    assert read_launch_line(["bash", "-c", text])


_NAMES = st.sampled_from(["A", "B", "C"])
_ATOMS = st.one_of(
    st.sampled_from(["a", "b1", "'x y'", '"p q"', "\\$", "--n=2", "'a\"b'", '"it\'s"', "a\\ b", "''"]),
    _NAMES.map(lambda name: f"${name}"),
    _NAMES.map(lambda name: f'"${{{name}}}z"'),
    _NAMES.map(lambda name: f"${{{name}:-d e}}"),
    _NAMES.map(lambda name: f'"${{{name}[@]}}"'),
    st.tuples(st.integers(0, 9), st.sampled_from("+-*"), st.integers(1, 9)).map(lambda t: f"$(({t[0]}{t[1]}{t[2]}))"),
)
_SHELL_WORDS = st.lists(_ATOMS, min_size=1, max_size=3).map("".join)
_STATEMENTS = st.one_of(
    st.tuples(_NAMES, _SHELL_WORDS).map(lambda t: f"{t[0]}={t[1]}"),
    st.tuples(_NAMES, _SHELL_WORDS).map(lambda t: f"{t[0]}+={t[1]}"),
    st.tuples(_NAMES, st.lists(_SHELL_WORDS, max_size=3)).map(lambda t: f"{t[0]}=({' '.join(t[1])})"),
    st.tuples(_NAMES, _SHELL_WORDS).map(lambda t: f"export {t[0]}={t[1]}"),
    _NAMES.map(lambda name: f"unset {name}"),
    st.tuples(_NAMES, _NAMES).map(lambda t: f'if [ -n "${t[0]}" ]; then {t[1]}=1; fi'),
    st.tuples(_NAMES, _NAMES).map(lambda t: f"for {t[0]} in 1 2; do {t[1]}=${t[0]}; done"),
)


@pytest.mark.full
@given(st.lists(_STATEMENTS, max_size=5), st.lists(_SHELL_WORDS, max_size=4))
@settings(max_examples=examples(600), deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_resolved_is_what_bash_makes_of_it(statements: list[str], arguments: list[str]) -> None:
    bash = shutil.which("bash")
    assert bash
    text = "unset A B C\n" + "\n".join(statements)
    done = subprocess.run(
        [bash, "--norc", "-c", f"{text}\nprintf '%s\\0' launch {' '.join(arguments)}"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    if done.stderr:  # such as an array that is exported
        return
    expected = done.stdout.split("\0")[:-1]
    command = evaluate(f"{text}\nlaunch {' '.join(arguments)}").commands[-1]
    if not any(word.may_be_several for word in command.argv):
        assert len(command.argv) == len(expected), (text, command.argv, expected)
        for word, real in zip(command.argv, expected, strict=True):
            assert word.unresolved or word.text == real, (text, word, real)
