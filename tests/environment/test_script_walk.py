"""Bash goes through a script and starts nothing: no program runs and no file changes, in any way of bash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor.environment import script_walk
from doctor.environment.script_walk import ScriptCall, walk

WAYS = r"""
RUN % { RUN; } % ( RUN ) % RUN & wait % RUN | cat % echo $(RUN) % echo `RUN` % A=$(RUN) % A=(1 $(RUN)) % cat <(RUN)
echo a > >(RUN) % coproc RUN % coproc N { RUN; } % if RUN; then :; fi % until RUN; do break; done % eval "eval RUN"
for i in $(RUN); do :; done % case $(RUN) in *) ;; esac % [[ $(RUN) ]] % echo ${Y:-$(RUN)} % (( 1$(RUN) ))
cat <<< "$(RUN)" % f() { RUN; }; f % f() ( RUN ); f % trap RUN EXIT % trap RUN ERR; false % trap RUN DEBUG; :
trap - DEBUG; RUN % set +T; (RUN) % shopt -u extdebug; RUN % exec RUN % command RUN % env RUN % ! RUN % A="b c" RUN
A='$(' RUN ')' % \RUN % "RUN" % ./pro""g % source s.sh % source <(echo RUN) % bash -c RUN % BASH_ENV=s.sh bash -c :
set -- RUN; "$@" % P=RUN; $P % printf -v a "$(RUN)" % mapfile -C 'RUN;' -c1 a < /etc/passwd % test -v 'a[$(RUN)]'
command -p RUN % exec -a x RUN % exec -l RUN % rm() { command rm "$@"; }; rm s.sh % f() { :; }; exec f
torchrun() { command ./pro?; }; torchrun % $PWD/prog % ~+/prog % ./pr* % {./prog,} % "$PWD"/prog % PATH=.:$PATH prog
function builtin { RUN; }; :
shopt() { RUN; }; : % set() { RUN; }; : % trap() { RUN; }; : % module() { RUN; }; module load x % ml() { RUN; }; ml
conda() { RUN; }; conda activate x % conda() { RUN; }; conda install x % x=+T; set $x; A=$(RUN) % echo a > out < absent
n=doctor_lea; unset -f ${n}ves_out; RUN % exec RUN > out % exec absent > out % time RUN % f() { set +T; (RUN); }; f
unset -f doctor_leaves_out; RUN % doctor_leaves_out() { return 1; }; RUN % readonly doctor_word=; RUN
hash -p RUN ls; ls
exec 241>&-; RUN % exec 240>&-; RUN % PATH=.:$PATH; cat() { prog; }; cat % printf() { RUN; }; printf % kill -9 $$; RUN
command_not_found_handle() { RUN; }; zzz % PS4='$(RUN)'; set -x; : % sed -n '1eRUN' /etc/passwd % sed e s.sh
awk 'BEGIN{system("RUN")}' % : > out % echo a >> out % > out % exec > out % exec 3<> out % echo a &> out % echo a >& out
tee out % A=1 > out % for i in 1; do :; done > out % f() { echo; } > out; f % rm s.sh % mkdir out % sort -o out s.sh
uniq s.sh out % sed -i s/a/b/ s.sh % sed 'w out' s.sh % awk 'BEGIN{print 1 > "out"}' % find . -name prog -exec {} +
"""


@pytest.mark.parametrize("text", [way.strip() for line in WAYS.strip().splitlines() for way in line.split(" % ")])
def test_nothing_of_a_script_is_started(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prog").write_text("#!/bin/sh\n: > STARTED\n")
    Path("prog").chmod(0o755)
    Path("s.sh").write_text("./prog\n")
    text = text.replace("RUN", "./prog")
    Path("job.sh").write_text(f"{text}\n")
    walk(ScriptCall(("bash", "job.sh"), f"{text}\n", frozenset((9,)), {"PATH": os.environ["PATH"]}))
    assert sorted(os.listdir()) == ["job.sh", "prog", "s.sh"] and Path("s.sh").read_text() == "./prog\n"


def test_a_script_that_waits_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_walk, "SECONDS", 0.2)
    path, text = tmp_path / "job.sh", "until [ -f absent ]; do\nsleep 1\ndone\ntorchrun t.py\n"
    path.write_text(text)
    walked = walk(ScriptCall(("bash", str(path)), text, frozenset((4,)), {"PATH": os.environ["PATH"]}))
    assert walked and (walked.reached, walked.is_sure) == (0, False)


def test_the_place_within_the_job_is_where_doctor_stands(tmp_path: Path) -> None:
    """What ends the script before the line that runs doctor itself has not ended it."""
    path = tmp_path / "job.sh"
    for head, is_sure in (("exit\ndoctor preflight\n", False), ("doctor preflight\nexit\n", True)):
        path.write_text(text := f"{head}torchrun t.py\n")
        walked = walk(ScriptCall(("bash", str(path)), text, frozenset((3,)), {"PATH": os.environ["PATH"]}))
        assert walked and (walked.reached, walked.is_sure) == (0, is_sure)
