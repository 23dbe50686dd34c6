"""The loader of playbooks: what must not run as root on many hosts is refused, with file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import doctor.remedy.catalog
from doctor.remedy.catalog import (
    MAX_BYTES,
    PlaybookError,
    check_files_by_name,
    load_playbooks,
    playbooks_for,
    read_finding_values,
    read_playbook,
)
from doctor.remedy.playbook import Playbook, PlaybookStep
from tests.examples import examples

CHECK_FILES = check_files_by_name()

HEAD = """\
title = "Longer listen queues"
treats = ["listen-queue-short", "syn-queue-short"]
who = "host admin"
risk = "low"
root = true
explicit = false
note = "New sockets only."
"""
RUN = """
[[step]]
say = "Set net.core.somaxconn to {expected}"
only = "command -v sysctl"
before = "sysctl -n net.core.somaxconn"
run = 'sysctl -w net.core.somaxconn="$expected"'
undo = 'sysctl -w net.core.somaxconn="$before"'
"""
FILE = """
[[step]]
say = "and at every boot"
file = "/etc/sysctl.d/99-x.conf"
line = "net.core.somaxconn = {expected}"
replaces = "^net\\\\.core\\\\.somaxconn\\\\s*="
mode = "0644"
"""
MANUAL_STEP = """
[[step]]
say = "Start the programs on {host} again"
"""
GOOD = HEAD + RUN + FILE + MANUAL_STEP


def written(folder: Path, text: str, name: str = "our-remedy.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(folder: Path, text: str, paths: Mapping[str, Path] = CHECK_FILES) -> tuple[int, str]:
    """Where and why a playbook is refused."""
    path = written(folder, text)
    with pytest.raises(PlaybookError) as caught:
        read_playbook(path, paths)
    output = str(caught.value)
    assert "\n" not in output and output.isprintable()
    observed_match = re.fullmatch(re.escape(str(path)) + r":(\d+): (.*)", output)
    assert observed_match, output
    return int(observed_match[1]), observed_match[2]


def test_a_playbook_is_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD, "raise_listen_queues.toml")
    assert read_playbook(path, CHECK_FILES) == Playbook(
        "raise-listen-queues",
        str(path),
        "Longer listen queues",
        ("listen-queue-short", "syn-queue-short"),
        "host admin",
        "low",
        root=True,
        note="New sockets only.",
        steps=(
            PlaybookStep(
                1,
                "Set net.core.somaxconn to {expected}",
                only="command -v sysctl",
                before="sysctl -n net.core.somaxconn",
                run='sysctl -w net.core.somaxconn="$expected"',
                undo='sysctl -w net.core.somaxconn="$before"',
            ),
            PlaybookStep(
                2,
                "and at every boot",
                file="/etc/sysctl.d/99-x.conf",
                line="net.core.somaxconn = {expected}",
                replaces=r"^net\.core\.somaxconn\s*=",
                mode="0644",
            ),
            PlaybookStep(3, "Start the programs on {host} again"),
        ),
    )


def test_work_for_hands_needs_no_more_than_words(tmp_path: Path) -> None:
    head = 'title = "Clean optics"\ntreats = ["optics-out-of-range"]\nwho = "vendor"\nrisk = "none"\n'
    assert read_playbook(written(tmp_path, head + MANUAL_STEP), CHECK_FILES).manual


@pytest.mark.parametrize(
    ("before", "after", "line", "output"),
    [
        ('"listen-queue-short"', '"listen-queue-shrot"', 2, "did you mean listen-queue-short?"),
        ('"listen-queue-short"', '"zzz"', 2, "`doctor list` names them all"),
        ('"listen-queue-short", "syn-queue-short"', "", 2, "treats: expected a list of checks"),
        ('"syn-queue-short"', '"listen-queue-short"', 2, "is listed twice"),
        ('["listen-queue-short", "syn-queue-short"]', '"listen-queue-short"', 2, "expected a list of checks"),
        ("treats =", "treat =", 2, "treat: no such key; did you mean treats?"),
        ('"Longer listen queues"', '" "', 1, "title: expected one line"),
        ('"Longer listen queues"', '"a\\nb"', 1, "title: expected one line"),
        ("title =", "# title =", 1, "title: is missing"),
        ('who = "host admin"', 'who = "anyone"', 3, "expected one of host admin, job owner, network, vendor"),
        ('"low"', '"high"', 4, "expected one of none, low, medium, interrupts-jobs, reboot"),
        ("root = true", "root = 1", 5, "root: expected true or false"),
        ("root = true", "", 1, "root: is missing; expected true or false where a step changes something"),
        ("explicit = false", 'survives = "true"', 6, "survives: no such key"),
        ("before =", "keep = true\nbefore =", 12, "keep: expected only beside file"),
        ("undo =", "irreversible = 'gone'\nundo =", 14, "this step has an undo; expected one of the two"),
        ('"$expected"', '"$expcted"', 13, "$expcted is not supplied by listen-queue-short; did you mean expected?"),
        ('"$expected"', '"$https_proxy"', 13, "$https_proxy is a variable that programs read by themselves"),
        ('note = "New sockets only."', "note = 3", 7, "note: expected text in quotes"),
        ('say = "Set net.core.somaxconn to {expected}"', "", 9, "step 1: say: is missing"),
        ('say = "Set net.core.somaxconn to {expected}"', 'say = "a\\nb"', 10, "step 1: say: expected one line"),
        (
            "to {expected}",
            "to {expcted}",
            10,
            "{expcted} is not supplied by listen-queue-short; did you mean expected?",
        ),
        ("to {expected}", "to {before}", 10, "{before} is available only in run and undo, as $before"),
        ('"syn-queue-short"]', '"npu-busy"]', 10, "{expected} is not supplied by npu-busy"),
        ("only =", "olny =", 11, "step 1: olny: no such key; did you mean only?"),
        ("before =", "#", 14, "$before is the output of before, which is missing"),
        ("undo =", "#", 13, "changes something and has no undo; expected undo, or changes = false"),
        ("'sysctl -w net.core.somaxconn=\"$before\"'", '""', 14, "undo: is empty; leave it out"),
        ("undo = 'sysctl", "changes = false\nundo = 'sysctl", 15, "changes = false leaves nothing to undo"),
        ('"$before"', '"$wanted"', 14, "$wanted is not supplied by"),
        ("/etc/sysctl.d/99-x.conf", "/etc/*/x", 18, "without .., // and *"),
        ("run = 'sysctl -w net.core.somaxconn=\"$expected\"'", "", 12, "step 1: before: expected only beside run"),
        ("/etc/sysctl.d/99-x.conf", "etc/x", 18, "step 2: file:"),
        ("/etc/sysctl.d/99-x.conf", "/etc/../x", 18, "expected an absolute path"),
        ("/etc/sysctl.d/99-x.conf", "/etc/x/", 18, "expected an absolute path"),
        ('file = "', 'run = "true"\nchanges = false\nfile = "', 20, "step 2: file: this step has a run already"),
        (
            'line = "',
            'text = "a"\nline = "',
            18,
            "one of line, text, remove, filter and keep beside it; found line and text",
        ),
        ('line = "', '# "', 18, "one of line, text, remove, filter and keep beside it; found none"),
        ('line = "', 'remove = "^x"\n# "', 21, "step 2: replaces: expected only beside line"),
        ("somaxconn = {expected}", "somaxconn = {expected}\\n", 19, "line: expected one line"),
        ("^net", "^(net", 20, "step 2: replaces: not a regular expression"),
        ('"0644"', '"644"', 21, 'mode: "644": expected an octal mode such as "0644"'),
        ('file = "', '# "', 19, "step 2: line: expected only beside file"),
        ("again", "in {rack}", 24, "step 3: say: {rack} is not supplied by listen-queue-short"),
        ('[[step]]\nsay = "Start', '[[steps]]\nsay = "Start', 23, "steps: no such key; did you mean step?"),
    ],
)
def test_what_breaks_a_rule_is_refused(tmp_path: Path, before: str, after: str, line: int, output: str) -> None:
    assert before in GOOD
    at, why = refusal(tmp_path, GOOD.replace(before, after, 1))
    assert output in why
    assert at == line


COMMANDS = """\
echo {expected}
echo x # {expected}
f `g {expected}`
f $((1 + {expected} ))
f ${a:-{expected} }
{expected} --now
eval f {expected}
sh -c 'f {expected}'
sh -ce 'echo {expected}'
sh -c {expected}
env {expected}
timeout 5 {expected}
xargs {expected}
nice {expected}
setsid {expected}
command {expected}
echo {expected} | sh
trap "echo {expected}" EXIT
X={expected}; $X
for i in {expected}; do $i; done
$SHELL -c 'f {expected}'
flock f -c 'f {expected}'
. {expected}
ssh h 'echo {expected}'
pdsh -w h {expected}
echo {expected} | at now
rm -rf /tmp/{expected}
sed -i 's/a/{expected}/' /etc/x
awk -v a={expected} '{ print a }'
{expected}
{before}"""


@pytest.mark.parametrize("key", ["run", "undo", "before", "only"])
@pytest.mark.parametrize("command", COMMANDS.splitlines())
def test_no_value_stands_in_a_command(tmp_path: Path, command: str, key: str) -> None:
    """Its text is fixed, whatever the command does with its words: nothing has to be known about quotes."""
    text = re.sub(rf"(?m)^{key} = .*$", lambda _: f"{key} = '''{command}'''", GOOD, count=1)
    _, why = refusal(tmp_path, text)
    assert why.startswith(f"step 1: {key}: {{") and "stands in a command, whose text is fixed; expected" in why


def test_a_variable_that_the_command_sets_itself_is_no_value(tmp_path: Path) -> None:
    command = 'for n in $hosts; do a=$(f "$n") && echo "$a" | while read -r x y; do g "$x$y"; done; done'
    text = GOOD.replace("'sysctl -w net.core.somaxconn=\"$expected\"'", f"'''{command}'''")
    assert read_playbook(written(tmp_path, text), CHECK_FILES).steps[0].environ_names == ["hosts"]


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("Raise.toml", "expected a name of small letters"),
        ("a--b.toml", "expected a name of small letters"),
        ("listen_queue_short.toml", "listen-queue-short is the name of a check"),
        ("kernel.toml", "kernel is the name of an area"),
    ],
)
def test_its_name_is_its_own(tmp_path: Path, name: str, output: str) -> None:
    with pytest.raises(PlaybookError, match=output):
        read_playbook(written(tmp_path, GOOD, name), CHECK_FILES)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "our-remedy.toml"
    os.mkfifo(path)
    with pytest.raises(PlaybookError, match="is not a regular file"):
        read_playbook(path, CHECK_FILES)
    path.unlink()
    with pytest.raises(PlaybookError, match="No such file"):
        read_playbook(path, CHECK_FILES)
    path.write_bytes(b"\xff")
    with pytest.raises(PlaybookError, match="is not UTF-8 text"):
        read_playbook(path, CHECK_FILES)
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(PlaybookError, match="is larger than"):
        read_playbook(path, CHECK_FILES)
    assert refusal(tmp_path, GOOD + "x = \n")[0] == 25
    assert "not TOML" in refusal(tmp_path, "a = " + "[" * 5000)[1]


PARTS = st.sampled_from(
    [
        *GOOD.splitlines(),
        "[[step]]",
        "[step]",
        "step = 1",
        "step = []",
        "step = [1]",
        "treats = [1]",
        'say = "{"',
        "a.b = 1",
        'replaces = "("',
        'remove = "{host"',
        'text = ""',
        'file = "/{hosts}"',
        'run = "$({a"',
        "changes = false",
        "x = inf",
        'mode = "\\u0000"',
        'run = "{before}"',
        "only = '''\n{expected}'''",
        'title.x = "y"',
        "undo = 1979-05-27",
        "[[treats]]",
    ]
)


@settings(max_examples=examples(300), deadline=None)
@given(text=st.one_of(st.text(max_size=60), st.lists(PARTS, max_size=14).map("\n".join)))
def test_garbage_is_refused_and_nothing_else(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "our-remedy.toml"
    path.write_text(text, "utf-8", "surrogatepass")
    try:
        playbook = read_playbook(path, CHECK_FILES)
    except PlaybookError as error:
        assert str(error).isprintable() and len(str(error)) < 1000
    else:
        assert playbook.treats and playbook.steps


@settings(max_examples=examples(100), deadline=None)
@given(data=st.binary(max_size=60))
def test_bytes_are_refused_and_nothing_else(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "our-remedy.toml"
    path.write_bytes(data)
    with pytest.raises(PlaybookError):
        read_playbook(path, CHECK_FILES)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for this program's own."""
    ours = tmp_path / "ours"
    ours.mkdir()
    monkeypatch.setattr(doctor.remedy.catalog, "bundled_folder", lambda folder: ours)
    return ours


def test_a_sites_own_come_in_by_the_same_door(house: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    written(house, GOOD, "b.toml")
    written(house, GOOD, "c.toml")
    written(site, GOOD.replace('["listen-queue-short", ', "["), "a.toml")
    (site / "README.md").write_text("no playbook")
    (site / ".#a.toml").symlink_to("an editor's lock")
    playbooks = load_playbooks([site])
    assert [playbook.name for playbook in playbooks] == ["b", "c", "a"]
    assert [playbook.name for playbook in playbooks_for(playbooks, "listen-queue-short")] == ["b", "c"]
    assert [playbook.name for playbook in playbooks_for(playbooks, "syn-queue-short")] == ["b", "c", "a"]


def test_a_folder_that_cannot_be_looked_into_is_not_an_empty_one(house: Path, tmp_path: Path) -> None:
    with pytest.raises(PlaybookError, match="nowhere: No such file or directory; expected a folder with playbooks"):
        load_playbooks([tmp_path / "nowhere"])


def test_a_name_that_is_taken_is_refused(house: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    written(house, GOOD)
    written(site, GOOD, "our_remedy.toml")
    with pytest.raises(
        PlaybookError, match=r"site/our_remedy.toml:1: our-remedy is already defined in .*ours/our-remedy.toml"
    ):
        load_playbooks([site])


OURS = '''
from doctor import ERROR, Finding, check
from doctor.facts.visit import Reachability

@check(severity=ERROR, area="site")
def our_rule(reach: Reachability):
    """Fine.

    ## What to do
    Run `{mend}`, and {tell}.
    """
    yield Finding("{a} is odd", a=1, b=2)
    yield from some(reach, "{c}", d=4)
'''


def test_what_a_sites_check_supplies_is_read_off_its_file(house: Path, tmp_path: Path) -> None:
    site = tmp_path / "checks"
    site.mkdir()
    path = site / "our_rule.py"
    path.write_text(OURS)
    assert read_finding_values(path) == {"a", "b", "c", "d", "mend", "tell", "observed", "expected"}
    text = HEAD.replace('["listen-queue-short", "syn-queue-short"]', '["our-rule"]')
    written(house, text + '[[step]]\nsay = "Set {a} {d}"\nbefore = "g"\nrun = \'f "$mend"\'\nundo = \'f "$b"\'\n')
    assert [playbook.treats for playbook in load_playbooks(checks=[site])] == [("our-rule",)]
    with pytest.raises(PlaybookError, match='no check is named "our-rule"'):
        load_playbooks()
    path.write_text("def our_rule(:")
    with pytest.raises(PlaybookError, match="the values of our-rule cannot be read"):
        load_playbooks(checks=[site])


def test_ours_are_in_order() -> None:
    assert [playbook.name for playbook in load_playbooks()] == sorted(playbook.name for playbook in load_playbooks())
