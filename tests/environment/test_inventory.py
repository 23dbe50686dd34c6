"""Which hosts a run looks at, and what is said when the list is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.bounded_read import read_text_file
from doctor.environment.inventory import HostSelection, Inventory, InventoryError, resolve_hosts
from doctor.hosts.nodeset import HostLogin
from doctor.session.select_hosts import select_inventory
from tests.checks.tables import a2, a3, lab, legacy


def files(**texts: str) -> Callable[[str], str]:
    def read(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(2, "No such file or directory", path)
        return texts[path]

    return read


def named(hosts: str, **environ: str) -> Inventory:
    return resolve_hosts(HostSelection(hosts=hosts), environ, files())


def in_file(text: str, exclude: str | None = None) -> Inventory:
    return resolve_hosts(HostSelection(hostfile="hosts", exclude=exclude), {}, files(hosts=text))


def refused(selection: HostSelection, read: Callable[[str], str] | None = None, **environ: str) -> str:
    with pytest.raises(InventoryError) as caught:
        resolve_hosts(selection, environ, read or files())
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node[1-3],gpu7", "node1 node2 node3 gpu7"),
        ("gpu7,node[1-3]", "gpu7 node1 node2 node3"),
        ("node[008-011]", "node008 node009 node010 node011"),
        ("10.1.2.[9-11]", "10.1.2.9 10.1.2.10 10.1.2.11"),
        ("n[0-1]c[1-2]", "n0c1 n0c2 n1c1 n1c2"),
        ("n[1-5/2]", "n1 n3 n5"),
        ("a b,c\n d", "a b c d"),
        ("node[1,2]-ib", "node1-ib node2-ib"),
        ("2001:db8::[1-2]", "2001:db8::1 2001:db8::2"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("node_1.lab.example", "node_1.lab.example"),
    ],
)
def test_node_set_keeps_the_order_given(text: str, hosts: str) -> None:
    assert named(text).hosts == tuple(hosts.split())


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no host is named"),
        (" , ", "no host is named"),
        ("node[1-", "missing bracket"),
        ("node[5-1]", "5-1"),
        ("node[a-b]", "is not a range"),
        ("node[]", "empty range"),
        ("node[1-2][3-4]", "a bracket follows another"),
        ("@no-such-group", "expected a group that `nodeset -l` lists"),
        ("@no-such-source:a", "no source of groups called no-such-source"),
        ("@a;b", "has an @"),
        ("me:hunter2@n1", "me:[hidden]@n1"),
        ("root@node1@x", "--user"),
        ("root@node1:99999", "--user"),
        ("-x@node1", "--user"),
        ("node1:22", "--port"),
        ("-oProxyCommand=x", "is not a host name"),
        (".", '"." is a file or folder'),
        ("../logs", "is a file or folder"),
        ("/var/log", "is a file or folder"),
        ("a;reboot", "is not a host name"),
        ("$(id)", "is not a host name"),
        ("a!b", "is not a host name"),
        ("a[1-2]!a1", "is not a node set"),
        ("a[-1-9000000]", "is not a range"),
        ("a[1_0-9_000_000]", "is not a range"),
        ("a[-1-2000000000]", "is not a range"),
        ("a[-1-3-5-7]", "is not a range"),
        ("a[1-2]b[]", "empty range"),
        ("e308[1-32]x[1_0-9]", "is not a range"),
        ("a[3-1]", "the first number is larger"),
        ("a[08-010]", "numbers of unlike widths"),
        ("a[1-2]&a1", "is not a node set"),
        ("..", "is a file or folder"),
        ("10.1.2.300", "is not an IPv4 or IPv6 address"),
        ("[1-3]", "is not an IPv4"),
        ("fe80::1%eth0", "is not an IPv4 or IPv6 address"),
        ("\x1b[31mred", "\\x1b"),
        ("node[1-99999999]", "more than 10000"),
        ("a[1-999]b[1-999]", "more than 10000"),
        ("n[0-99999999999999999999]", "more than 10000"),
        ("node1,node[1-3]", "duplicate host node1;"),
        ("Node1,node1", "duplicate"),
        ("2001:db8::1,2001:0db8::1", "duplicate"),
        ("x" * 300, "is not a host name"),
    ],
)
def test_wrong_node_set_is_one_line(text: str, part: str) -> None:
    message = refused(HostSelection(hosts=text))
    assert part in message
    assert message.startswith("the command line: ")
    assert "expected" in message or "is not an IPv4" in message


def test_the_first_source_wins() -> None:
    text = json.dumps(a2())
    read = files(hf="h1\n", other="h2\n", rt=text, rt2=text)
    environ = {
        "DOCTOR_HOSTS": "e1",
        "DOCTOR_HOSTFILE": "other",
        "SLURM_JOB_NODELIST": "s[1-2]",
        "RANK_TABLE_FILE": "rt2",
    }
    options = HostSelection(hosts="o1", hostfile="hf", rank_table="rt")
    order = [
        (options, "1 host from the command line"),
        (HostSelection(hostfile="hf", rank_table="rt"), "1 host from hostfile hf (bare names)"),
        (HostSelection(rank_table="rt"), "2 hosts from rank table rt"),
    ]
    for given_options, source in order:
        assert resolve_hosts(given_options, environ, read).source == source
    for name, source in [
        ("DOCTOR_HOSTS", "1 host from DOCTOR_HOSTS"),
        ("DOCTOR_HOSTFILE", "1 host from hostfile other (bare names), named by DOCTOR_HOSTFILE"),
        ("SLURM_JOB_NODELIST", "2 hosts from SLURM_JOB_NODELIST"),
        ("RANK_TABLE_FILE", "2 hosts from rank table rt2, named by RANK_TABLE_FILE"),
    ]:
        assert resolve_hosts(HostSelection(), environ, read).source == source
        del environ[name]
    alone = resolve_hosts(HostSelection(), environ, read)
    assert (alone.hosts, alone.local, alone.source) == (("localhost",), True, "this host alone")
    assert "--hostfile" in alone.notes[0]


def test_empty_option_is_refused_and_empty_variable_is_unset() -> None:
    assert "no host is named" in refused(HostSelection(hosts=""))
    assert resolve_hosts(HostSelection(), {"DOCTOR_HOSTS": "", "SLURM_JOB_NODELIST": ""}, files()).local


def test_slurm_names_with_two_brackets() -> None:
    assert len(resolve_hosts(HostSelection(), {"SLURM_JOB_NODELIST": "r[1-2]n[01-32],login"}, files()).hosts) == 65


@pytest.mark.parametrize(
    ("text", "form", "slots"),
    [
        ("n1 slots=8\nn2 slots=4 max_slots=16\n", "host slots=N", {"n1": 8, "n2": 4}),
        ("n1   slots = 8\r\nn2 max-slots=9 slots=2\r\n", "host slots=N", {"n1": 8, "n2": 2}),
        ("n1:8\nn2:4\n", "host:N", {"n1": 8, "n2": 4}),
        ("# all\nn1\n\n  n2  # spare\n", "bare names", {}),
        ("\ufeffn1\nn2 slots=8", "mixed forms", {"n2": 8}),
        ("[2001:db8::1]:8\n[2001:db8::2]:8", "host:N", {"2001:db8::1": 8, "2001:db8::2": 8}),
        ("2001:db8::1 slots=8\n10.0.0.1 slots=8", "host slots=N", {"2001:db8::1": 8, "10.0.0.1": 8}),
        ("n1 max_slots=4", "bare names", {}),
        ("n1\nn1\nn2\nN1\n", "a line for each slot", {"n1": 3, "n2": 1}),
        ("n1 slots=2\nn2 slots=2\nn1 slots=2\n", "host slots=N", {"n1": 4, "n2": 2}),
        ("n1:4\nn2:4\nn1:4\n", "host:N", {"n1": 8, "n2": 4}),
        ("n1:8:mlx5_0\nn2:8:mlx5_0\n", "host:N:adapter", {"n1": 8, "n2": 8}),
        ("n1 4 all.q@n1 UNDEFINED\nn2 4 all.q@n2 <NULL>\n", "host N", {"n1": 4, "n2": 4}),
        ("root@n1 slots=2\nroot@n2:2222 slots=2\n", "host slots=N", {"n1": 2, "n2": 2}),
        ("root@[2001:db8::1]:22\nn2", "bare names", {}),
    ],
)
def test_hostfile_forms(text: str, form: str, slots: dict[str, int]) -> None:
    inventory = in_file(text)
    assert inventory.source.endswith(f"hostfile hosts ({form})")
    assert inventory.slots == slots


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "hosts: contains no host"),
        ("# nothing\n\n", "contains no host"),
        ("n1 slots=eight\n", 'hosts:1: "eight" slots; expected a number from 1 to 4096'),
        ("n1:0\n", '"0" slots'),
        ("n1\nn2 gpu\n", 'hosts:2: "gpu" has an unknown form'),
        ("node[1-4]\n", "is not a host name"),
        ("-v\n", "is not a host name"),
        ("ro ot@n1\n", '"ot@n1" has an unknown form'),
        ("a;b@n1\n", "has an @"),
        ("n1:8:mlx5;0\n", "is not an IPv4"),
        ("n1 99999 all.q@n1\n", '"99999" slots'),
        ("\n".join(f"n{n}" for n in range(10_001)), "more than 10000 hosts"),
    ],
)
def test_wrong_hostfile_names_the_line(text: str, part: str) -> None:
    assert part in refused(HostSelection(hostfile="hosts"), files(hosts=text))


def test_unused_settings_of_a_hostfile_are_said() -> None:
    assert in_file("n1:4 binding=user:0\n").notes == ("hosts:1: not used: binding",)
    assert in_file("n1:4:mlx5_0\n").notes == ("hosts:1: not used: adapter mlx5_0",)


def test_logins_of_a_list_are_kept_and_are_no_part_of_a_name() -> None:
    in_list = resolve_hosts(HostSelection(hosts="root@n[1,3]:2222,ops@[2001:db8::1],n4"), {}, files())
    assert in_list.hosts == ("n1", "n3", "2001:db8::1", "n4")
    assert in_list.logins == {
        "n1": HostLogin("root", 2222),
        "n3": HostLogin("root", 2222),
        "2001:db8::1": HostLogin("ops"),
    }
    lines = in_file("root@n1:2222 slots=8\nn2:8\nops@n3\n")
    assert lines.hosts == ("n1", "n2", "n3") and lines.slots == {"n1": 8, "n2": 8} and not lines.notes
    assert lines.logins == {"n1": HostLogin("root", 2222), "n3": HostLogin("ops")}


def test_a_large_node_file_is_read_in_one_pass() -> None:
    text = "".join(f"n{host}\n" * 100 for host in range(2000))
    assert set(in_file(text).slots.values()) == {100}


def test_missing_and_unreadable_files() -> None:
    assert refused(HostSelection(hostfile="h")) == "h: No such file or directory; expected a hostfile that can be read"
    assert "expected a rank table" in refused(HostSelection(rank_table="r"))

    def binary(path: str) -> str:
        return b"\xff\xfe".decode()

    assert "not UTF-8" in refused(HostSelection(hostfile="h"), binary)


def test_hosts_of_a_rank_table() -> None:
    inventory = resolve_hosts(HostSelection(rank_table="rt"), {}, files(rt=json.dumps(a3())))
    assert inventory.hosts == tuple(f"172.16.0.{n}" for n in range(110, 114))
    assert inventory.slots["172.16.0.110"] == 16
    for table in (legacy(), lab(2)):
        assert resolve_hosts(HostSelection(rank_table="rt"), {}, files(rt=json.dumps(table))).hosts == (
            "172.16.0.10",
            "172.16.0.11",
        )
    nameless = a2()
    for server in nameless["server_list"]:
        del server["host_ip"]
    assert resolve_hosts(HostSelection(rank_table="rt"), {}, files(rt=json.dumps(nameless))).hosts == (
        "node_0",
        "node_1",
    )


def test_rank_table_that_gives_no_hosts() -> None:
    twice = a2()
    twice["server_list"][1]["host_ip"] = twice["server_list"][0]["host_ip"]
    message = refused(HostSelection(rank_table="rt"), files(rt=json.dumps(twice)))
    assert "rt: server_list[1]: duplicate host 172.16.0.110, first in rt: server_list[0]" in message
    assert "line 1 column 1" in refused(HostSelection(rank_table="rt"), files(rt="nonsense"))
    assert "version 2.0" in refused(HostSelection(rank_table="rt"), files(rt='{"version": "2.0"}'))
    assert "lists no host" in refused(HostSelection(rank_table="rt"), files(rt='{"version": "1.0"}'))
    bad = a2()
    bad["server_list"][0].update(host_ip="", server_id="a b")
    assert '"a b" is not a host name' in refused(HostSelection(rank_table="rt"), files(rt=json.dumps(bad)))


def test_exclude() -> None:
    inventory = resolve_hosts(HostSelection(hosts="n[1-5]", exclude="n[2-3],n9"), {}, files())
    assert inventory.hosts == ("n1", "n4", "n5")
    assert inventory.source == "5 hosts from the command line, less 2 excluded"
    assert inventory.notes == ("--exclude: not in the host list: n9",)
    assert in_file("n1 slots=8\nn2 slots=8", "n2").slots == {"n1": 8}
    assert "removes all of 2 hosts" in refused(HostSelection(hosts="a,b", exclude="b,a"))
    assert refused(HostSelection(hosts="a", exclude="b[")).startswith("--exclude: ")


GROUPS = """\
import sys
from doctor.environment.inventory import HostSelection, InventoryError, resolve_hosts
for text in sys.argv[1:]:
    try:
        print(*resolve_hosts(HostSelection(hosts=text), {}, open).hosts)
    except InventoryError as error:
        print(error)
"""


def test_groups_of_clustershell(tmp_path: Path) -> None:
    settings = "[Main]\ndefault: site\nautodir: $CFGDIR\n"
    (tmp_path / "groups.conf").write_text(settings)
    (tmp_path / "site.yaml").write_text("site:\n  gpu: 'n[1-3]'\n  huge: 'n[1-20000]'\n")
    environ = {**os.environ, "CLUSTERSHELL_CFGDIR": str(tmp_path)}
    argv = [sys.executable, "-c", GROUPS, "@gpu,m1", "@site:gpu", "@huge", "@none"]
    done = subprocess.run(argv, env=environ, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["n1 n2 n3 m1", "n1 n2 n3"]
    assert "more than 10000 hosts" in lines[2]
    assert "expected a group" in lines[3]


@pytest.mark.parametrize("group", ["@all", "@adm", "@compute"])
def test_the_groups_that_clustershell_has_as_an_example_are_no_groups(tmp_path: Path, group: str) -> None:
    """`doctor check --hosts @all` looked up 131 hosts that nobody has."""
    example = "adm: example0\noss: example4 example5\ncompute: example[32-159]\nall: example[4-6,32-159]\n"
    (tmp_path / "groups.conf").write_text(
        "[Main]\ndefault: local\n[local]\nmap: sed -n 's/^$GROUP:\\(.*\\)/\\1/p' $CFGDIR/local.txt\n"
    )
    (tmp_path / "local.txt").write_text(example)
    environ = {**os.environ, "CLUSTERSHELL_CFGDIR": str(tmp_path)}
    argv = [sys.executable, "-c", GROUPS, group]
    done = subprocess.run(argv, env=environ, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert f'"{group}": it is an example that comes with ClusterShell; expected a group' in done.stdout


ANSIBLE = {
    "_meta": {"hostvars": {"gpu": {"ansible_host": "127.0.0.9", "ansible_user": "root", "ansible_port": 2222}}},
    "all": {"children": ["ungrouped", "workers", "spares"]},
    "spares": {"hosts": ["n2"]},
    "workers": {"hosts": ["n1", "n2", "gpu"]},
}
INI = "[workers]\nn[1:2]\ngpu ansible_host=127.0.0.9 ansible_user=root\n\n[spares]\nn2\n"


class TestAnsible:
    def test_an_inventory_is_read_by_its_own_program(self) -> None:
        commands: list[Sequence[str]] = []

        def run(argv: Sequence[str]) -> str:
            commands.append(argv)
            return json.dumps(ANSIBLE)

        inventory = resolve_hosts(HostSelection(hostfile="/etc/hosts.ini"), {}, lambda path: INI, run)
        assert inventory.hosts == ("n1", "n2", "127.0.0.9")
        assert not inventory.notes and inventory.logins == {"127.0.0.9": HostLogin("root", 2222)}
        assert inventory.source == "3 hosts from hostfile /etc/hosts.ini (Ansible inventory)"
        assert commands == [("ansible-inventory", "--inventory", "/etc/hosts.ini", "--list")]

    @pytest.mark.parametrize(
        ("variables", "excerpt"),
        [({"ansible_user": "-oProxyCommand=x"}, "ansible_user"), ({"ansible_port": "22x"}, "ansible_port")],
    )
    def test_a_login_that_ssh_would_not_take_is_refused(self, variables: dict[str, str], excerpt: str) -> None:
        output = json.dumps({"_meta": {"hostvars": {"n1": variables}}, "workers": {"hosts": ["n1"]}})
        with pytest.raises(InventoryError, match=excerpt):
            resolve_hosts(HostSelection(hostfile="/i"), {}, lambda path: INI, lambda argv: output)

    @pytest.mark.parametrize("output", ["", "[]", "{", "{}", '{"a": {"hosts": ["-x"]}}', '{"a": {"hosts": [["b"]]}}'])
    def test_what_it_prints_is_not_believed(self, output: str) -> None:
        with pytest.raises(InventoryError) as caught:
            resolve_hosts(HostSelection(hostfile="/i"), {}, lambda path: INI, lambda argv: output)
        assert str(caught.value).startswith("/i: ")

    def test_without_the_program(self) -> None:
        def absent(argv: Sequence[str]) -> str:
            raise OSError("ansible-inventory is not installed")

        with pytest.raises(InventoryError) as caught:
            resolve_hosts(HostSelection(hostfile="/i"), {}, lambda path: INI, absent)
        expected = "/i: an Ansible inventory, and ansible-inventory is not installed; expected a hostfile"
        assert str(caught.value) == expected

    @pytest.mark.skipif(not shutil.which("ansible-inventory"), reason="needs Ansible (ansible-core)")
    def test_with_the_real_program(self, tmp_path: Path) -> None:
        path = tmp_path / "hosts.ini"
        path.write_text(INI)
        path.chmod(0o755)
        assert resolve_hosts(HostSelection(hostfile=str(path)), {}, read_text_file).hosts == ("n1", "n2", "127.0.0.9")


def test_clustershell_is_loaded_only_for_a_range() -> None:
    program = (
        "import sys; from doctor.environment.inventory import HostSelection, resolve_hosts;"
        "resolve_hosts(HostSelection(hosts='a,10.0.0.1'), {}, open);"
        "assert not [m for m in sys.modules if m.startswith('ClusterShell')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])


any_text = st.text(st.sampled_from("abn019[]-,.:/@!&^% \n=#$%*'\"\x1b"), max_size=40) | st.text(max_size=40)


@given(any_text)
def test_any_text_is_a_node_set_or_refused(text: str) -> None:
    try:
        inventory = resolve_hosts(HostSelection(hosts=text), {}, files())
    except InventoryError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        _safe(inventory)


@given(any_text)
def test_any_text_is_a_hostfile_or_refused(text: str) -> None:
    try:
        inventory = in_file(text)
    except InventoryError as error:
        assert "\n" not in str(error) and str(error).isprintable()
    else:
        _safe(inventory)


@given(st.text(max_size=60), st.sampled_from(["rank_table", "hostfile", "hosts", "exclude"]))
def test_any_text_in_any_place(text: str, place: str) -> None:
    options = HostSelection(**{"hosts": "n1", place: "f"}) if place == "exclude" else HostSelection(**{place: text})
    try:
        _safe(resolve_hosts(options, {"RANK_TABLE_FILE": text}, lambda path: text))
    except InventoryError as error:
        assert str(error).isprintable()


def _safe(inventory: Inventory) -> None:
    assert inventory.hosts
    assert len(set(inventory.hosts)) == len(inventory.hosts)
    for host in inventory.hosts:
        assert host[0] not in "-." and set(host) <= set(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:"
        )
    assert set(inventory.slots) <= set(inventory.hosts)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("e308[9-10]", ["e3089", "e30810"]),
        ("n[3,1-2]", ["n3", "n1", "n2"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[0-6/3]x[1,1]", ["n0x1", "n3x1", "n6x1"]),
        ("r[1-2]n[7-8].site", ["r1n7.site", "r1n8.site", "r2n7.site", "r2n8.site"]),
    ],
)
def test_a_node_set_is_its_text_with_each_number(text: str, hosts: list[str]) -> None:
    """As Slurm writes it: digits before a bracket belong to the name."""
    assert list(resolved(text).hosts) == hosts


def resolved(text: str) -> Inventory:
    return resolve_hosts(HostSelection(hosts=text), {}, str)


@pytest.mark.parametrize(
    ("environ", "scope", "message"),
    [
        ({}, "auto", ""),
        ({"LSB_JOBID": "1", "LSB_BATCH_JID": "1"}, "auto", "LSF job 1 does not list them"),
        ({"LSB_JOBID": "1", "LSB_BATCH_JID": "1"}, "local", ""),
        ({"LSB_JOBID": "1", "DOCTOR_HOSTS": "a,b"}, "auto", ""),
        ({"WORLD_SIZE": "16", "MASTER_ADDR": "10.0.0.1"}, "auto", "the names of the job's hosts are unknown"),
        (
            {"VC_WORKER_HOSTS": "n1,n2", "VC_TASK_INDEX": "0"},
            "auto",
            "VC_WORKER_HOSTS names 2 hosts of the job, and this",
        ),
        ({"VC_WORKER_HOSTS": "n1", "VC_TASK_INDEX": "0"}, "auto", ""),
        ({"VC_WORKER_HOSTS": "n1,n2", "VC_TASK_INDEX": "0", "DOCTOR_HOSTS": "n1"}, "auto", ""),
        (
            {"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1"},
            "auto",
            "SM_HOSTS names 2 hosts of the job",
        ),
        ({"SM_HOSTS": '["algo-1"', "SM_CURRENT_HOST": "algo-1"}, "auto", "is not JSON"),
        ({"SM_HOSTS": '["algo-1", "algo-2"]', "SM_CURRENT_HOST": "algo-1"}, "local", ""),
    ],
)
def test_hosts_that_nothing_lists(
    environ: dict[str, str], scope: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`check` and `smoke` know why there may be more hosts, unless this one is enough."""
    for name in tuple(os.environ):
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    hosts_unknown = select_inventory(HostSelection(), scope).hosts_unknown
    assert message in hosts_unknown
    assert bool(message) == bool(hosts_unknown)
