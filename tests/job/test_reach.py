"""What keeps a script from its launch line, with bash beside: what is said to be left out never runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from doctor.engine.record import LaunchOptions
from doctor.environment.job_environment import launches_of_job_script

RUN = "torchrun --standalone train.py"
LEFT_OUT = (
    f"go() {{\n  return 0\n  {RUN}\n}}\ngo",
    f"go() {{ true && return; {RUN}; }}\ngo",
    f"go\ngo() {{\n  {RUN}\n}}",
    f"go() {{\n  {RUN}\n}}\nunset -f go\ngo",
    f"for s in 1 2; do\n  break\n  {RUN}\ndone",
    f"for s in 1; do continue; {RUN}; done",
    f"NONE=\nfor s in $NONE; do\n  {RUN}\ndone",
    f"while false; do {RUN}; done",
    f"until true; do {RUN}; done",
    f"MODE=test\nif [ $MODE = train ]; then\n  {RUN}\nfi",
    f"if ! [[ 2 -lt 1 ]]; then\n  true\nelse\n  {RUN}\nfi",
    f"if true; then exit 0; elif true; then {RUN}; fi",
    f"false && {RUN}",
    f"[ -z '' ] || {RUN}",
    f"true && false && true && {RUN}",
    f"( exit 0; {RUN} )",
)
"""Nothing but bash decides in them."""
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


def problems(script: str, folder: Path, **environ: str) -> list[str]:
    """What is said of a script that runs next."""
    path = folder / "job.sh"
    path.write_text(script + "\n")
    launch = launches_of_job_script(str(path), {"PATH": os.environ["PATH"], **environ}, is_next=True)[0]
    return [row.expected for row in launch.complete(LaunchOptions()).option_problems]


@pytest.mark.parametrize("script", LEFT_OUT)
def test_a_launch_line_that_the_shell_does_not_reach(script: str, tmp_path: Path) -> None:
    assert not runs(script) and problems(script, tmp_path)


@pytest.mark.parametrize("script", REACHED)
def test_a_launch_line_that_it_reaches(script: str, tmp_path: Path) -> None:
    assert runs(script) and not problems(script, tmp_path)


def test_a_script_of_other_hosts_is_read_alone(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(f"[[ -v A[$(touch {tmp_path}/STARTED)] ]]\nfalse && {RUN}\n")
    launch = launches_of_job_script(str(path), {"PATH": os.environ["PATH"]})[0]
    assert "not known: whether the script comes to this line" in launch.not_followed[-1]
    assert os.listdir(tmp_path) == ["job.sh"]
