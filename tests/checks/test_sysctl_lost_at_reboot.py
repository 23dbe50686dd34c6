import shlex

import pytest

from doctor.facts.kernel import KernelSetting, LiveSettings, SysctlFiles
from tests.checks.run_check import FactsByHost, advice, messages, run_check

SOMAXCONN, PORTS = "net.core.somaxconn", "net.ipv4.ip_local_reserved_ports"
SYN, RANGE = "net.ipv4.tcp_max_syn_backlog", "net.ipv4.ip_local_port_range"
FILE = "/etc/sysctl.d/90-cluster.conf"


def host(live: dict[str, str], *files: tuple[str, str], unheeded: tuple[str, str] | None = None) -> FactsByHost:
    lines = tuple(KernelSetting(key, value, FILE) for key, value in files)
    other = (KernelSetting(*unheeded, "/etc/sysctl.conf"),) if unheeded else ()
    return {"a": [LiveSettings(values=live), SysctlFiles(settings=lines, ignored=other)]}


def findings(*args: object, **kwargs: object) -> list[str]:
    return [text for _, text in messages(run_check("sysctl-lost-at-reboot", host(*args, **kwargs)))]  # type: ignore[arg-type]


def test_what_files_set_is_well() -> None:
    assert findings({SOMAXCONN: "65535", PORTS: "60000-60031"}, (SOMAXCONN, "65535"), (PORTS, "60000-60031")) == []


def test_what_a_kernel_starts_with_needs_no_file() -> None:
    assert findings({SOMAXCONN: "4096", SYN: "2048", PORTS: "", RANGE: "32768 60999"}) == []
    assert findings({SOMAXCONN: "128", SYN: "128"}) == []


def test_a_value_set_by_hand_is_lost() -> None:
    assert findings({SOMAXCONN: "65535"}) == ["net.core.somaxconn is 65535 now, but no file sets it"]
    assert len(findings({PORTS: "60000-60031", SYN: "65535", RANGE: "1024 65535"})) == 3


def test_a_file_that_says_otherwise() -> None:
    assert findings({SOMAXCONN: "65535"}, (SOMAXCONN, "1024")) == [
        f"net.core.somaxconn is 65535 now, but {FILE} sets 1024 at boot"
    ]


def test_the_last_line_counts() -> None:
    assert findings({SOMAXCONN: "2"}, (SOMAXCONN, "1"), (SOMAXCONN, "2")) == []


def test_reserved_ports_are_compared_as_sets() -> None:
    assert findings({PORTS: "8080,60000-60031"}, (PORTS, "60016-60031, 60000-60015,8080")) == []
    assert findings({PORTS: "60000-60031"}, (PORTS, "60000-60015")) != []
    assert findings({PORTS: "60000-60031"}, (PORTS, "sixty")) != []


def test_a_line_in_a_file_that_nothing_reads() -> None:
    assert findings({SOMAXCONN: "65535"}, unheeded=(SOMAXCONN, "65535")) == [
        "net.core.somaxconn is 65535 now, but only /etc/sysctl.conf sets it, which systemd does not read"
    ]


def test_the_advice_keeps_the_value_of_now() -> None:
    outcome = run_check("sysctl-lost-at-reboot", host({SOMAXCONN: "65535"}))
    assert "echo 'net.core.somaxconn = 65535' >>" in advice("sysctl-lost-at-reboot", outcome)


def test_a_file_that_is_read_later_is_changed_itself() -> None:
    """The line of another file would have no effect: files are read by the order of their names."""
    facts = host({SOMAXCONN: "4096"})
    late = KernelSetting(SOMAXCONN, "128", "/etc/sysctl.d/99-zz.conf")
    facts["a"] = [facts["a"][0], SysctlFiles(settings=(late,), ignored=())]
    command = "sed -i.bak --follow-symlinks -E 's|^[[:space:]]*-?net[./]core[./]somaxconn[[:space:]]*=.*|"
    text = advice("sysctl-lost-at-reboot", run_check("sysctl-lost-at-reboot", facts))
    assert f"{command}net.core.somaxconn = 4096|' /etc/sysctl.d/99-zz.conf" in text


def test_a_worse_value_of_now_is_not_kept() -> None:
    """A queue that is shorter than the files have it, or a port that they reserve, is not written down."""
    for key, live, boot in ((SOMAXCONN, "128", "65535"), (SYN, "64", "4096"), (PORTS, "8080", "8080,60000-60031")):
        outcome = run_check("sysctl-lost-at-reboot", host({key: live}, (key, boot)))
        assert advice("sysctl-lost-at-reboot", outcome).count("echo") == 0
        command = advice("sysctl-lost-at-reboot", outcome)
        assert f"sysctl -w {key}=" in command and command.count(boot) == 1
        assert [finding.values["keep"] for finding in outcome.findings] == ["no"]
    outcome = run_check("sysctl-lost-at-reboot", host({SOMAXCONN: "65535"}, (SOMAXCONN, "128; reboot")))
    assert [finding.values["keep"] for finding in outcome.findings] == ["yes"]


@pytest.mark.parametrize(
    ("key", "value"),
    [(SOMAXCONN, "60"), (SYN, "100"), (RANGE, "40000 40003"), (RANGE, "60998 60999"), (PORTS, "1-65000")],
)
def test_a_value_that_is_a_fault_is_not_made_to_last(key: str, value: str) -> None:
    """Where no file sets it, the reboot mends it; where one sets a better value, that is the one to have."""
    live = {RANGE: "32768 60999", key: value}
    assert findings(live) == []
    better = {SOMAXCONN: "65535", SYN: "65535", RANGE: "32768 60999", PORTS: "60000-60031"}[key]
    outcome = run_check("sysctl-lost-at-reboot", host(live, (key, better)))
    text = advice("sysctl-lost-at-reboot", outcome)
    assert f"`sysctl -w {shlex.quote(f'{key}={better}')}`" in text and "echo" not in text
    assert [finding.values["keep"] for finding in outcome.findings] == ["no"]


def test_a_file_that_sets_another_faulty_value_is_left_to_the_check_that_judges_it() -> None:
    assert findings({RANGE: "40000 40003"}, (RANGE, "50000 50003")) == []
    assert findings({RANGE: "32768 60999"}, (RANGE, "50000 50003")) != []
