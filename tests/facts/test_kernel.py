"""Kernel settings, now and at boot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Output, Unreadable
from doctor.facts.kernel import (
    MAIN_FILE,
    PORT_RANGE,
    RESERVED_PORTS,
    SOMAXCONN,
    Conntrack,
    KernelSetting,
    ListenQueues,
    LiveSettings,
    SysctlFiles,
    expected_connections,
    may_be_default,
    parse_sysctl,
    sysctl_path,
)
from doctor.job import LaunchConfig
from tests.checks.npus import npus
from tests.facts.answers import learned, refused
from tests.facts.garbage import ANYTHING, value_of

NONE = Output(ended="absent", err="does not exist")


def files(init: str = "init", **texts: str) -> SysctlFiles:
    """Files by their paths, without the leading slash."""
    outputs = {f"/{path}": Output(out=text) for path, text in texts.items()}
    outputs.setdefault(MAIN_FILE, NONE)
    sysctl_files = learned(SysctlFiles, {**outputs, "/proc/1/comm": Output(out=f"{init}\n")})
    assert isinstance(sysctl_files, SysctlFiles)
    return sysctl_files


def boot(key: str, files: SysctlFiles) -> str | None:
    kernel_setting = files.boot_setting(key)
    return kernel_setting.value if kernel_setting else None


class TestListenQueues:
    def test_numbers(self) -> None:
        assert value_of(ListenQueues, "4096\n", "1024\n", "1\n") == ListenQueues(
            somaxconn=4096, syn_backlog=1024, syncookies=1
        )

    def test_what_a_container_does_not_show(self) -> None:
        why = learned(ListenQueues, dict.fromkeys(ListenQueues.probe.paths, NONE))
        assert type(why) is Absent

    @given(ANYTHING)
    def test_anything_else_is_no_number(self, text: str) -> None:
        fact = value_of(ListenQueues, text, "1", "1")
        if isinstance(fact, ListenQueues):
            assert str(fact.somaxconn) == text.strip().lstrip("0") or fact.somaxconn == 0
        else:
            assert isinstance(fact, Unreadable)


class TestSysctlFiles:
    def test_lines(self) -> None:
        text = "# a\n; b\n\n net.core.somaxconn = 1 \n-net/ipv4/x=2\tb  c\nnonsense\n-net.excluded\nnet.empty =\n"
        assert [(line.key, line.value) for line in parse_sysctl(text, "f")] == [
            ("net.core.somaxconn", "1"),
            ("net.ipv4.x", "2 b c"),
            ("-net.excluded", ""),
            ("net.empty", ""),
        ]

    def test_the_order_is_that_of_names_not_of_folders(self) -> None:
        sysctl_files = files(
            **{
                "etc/sysctl.d/10-a.conf": f"{SOMAXCONN} = 1",
                "usr/lib/sysctl.d/50-b.conf": f"{SOMAXCONN} = 2",
                "run/sysctl.d/20-c.conf": f"{SOMAXCONN} = 3",
            }
        )
        assert sysctl_files.boot_setting(SOMAXCONN) == KernelSetting(SOMAXCONN, "2", "/usr/lib/sysctl.d/50-b.conf")

    @pytest.mark.parametrize("lower", ["run", "usr/local/lib", "usr/lib", "lib"])
    def test_a_file_hides_its_namesake_in_a_later_folder(self, lower: str) -> None:
        sysctl_files = files(**{"etc/sysctl.d/50-a.conf": "", f"{lower}/sysctl.d/50-a.conf": f"{SOMAXCONN} = 2"})
        assert boot(SOMAXCONN, sysctl_files) is None

    def test_sysctl_conf_comes_last(self) -> None:
        sysctl_files = files(**{"etc/sysctl.conf": f"{SOMAXCONN} = 1", "etc/sysctl.d/99-z.conf": f"{SOMAXCONN} = 2"})
        assert boot(SOMAXCONN, sysctl_files) == "1"

    def test_systemd_does_not_read_sysctl_conf(self) -> None:
        sysctl_files = files("systemd", **{"etc/sysctl.conf": f"{SOMAXCONN} = 1"})
        assert boot(SOMAXCONN, sysctl_files) is None
        assert sysctl_files.ignored == (KernelSetting(SOMAXCONN, "1", MAIN_FILE),)

    def test_systemd_reads_it_through_a_link(self) -> None:
        text = f"{SOMAXCONN} = 1"
        sysctl_files = files("systemd", **{"etc/sysctl.conf": text, "etc/sysctl.d/99-sysctl.conf": text})
        assert boot(SOMAXCONN, sysctl_files) == "1"

    def test_slashes_and_globs(self) -> None:
        assert boot(SOMAXCONN, files(**{"etc/sysctl.d/a.conf": "net/core/somaxconn=5"})) == "5"
        assert boot(SOMAXCONN, files(**{"etc/sysctl.d/a.conf": "net.core.some*=5\nnet.core.so*=6"})) == "6"

    def test_a_key_by_its_name_wins_over_a_later_glob(self) -> None:
        assert boot(SOMAXCONN, files(**{"etc/sysctl.d/a.conf": f"{SOMAXCONN}=5\nnet.core.*=6"})) == "5"

    def test_an_excluded_key_is_set_by_no_glob(self) -> None:
        sysctl_files = files(**{"etc/sysctl.d/a.conf": f"net.core.*=6\n-{SOMAXCONN}"})
        assert boot(SOMAXCONN, sysctl_files) is None

    def test_the_last_line_of_a_key_says_whether_it_is_set(self) -> None:
        """Measured with systemd-sysctl 252."""
        assert boot(SOMAXCONN, files(**{"etc/sysctl.d/a.conf": f"{SOMAXCONN}=5\n-{SOMAXCONN}"})) is None
        assert boot(SOMAXCONN, files(**{"etc/sysctl.d/a.conf": f"-{SOMAXCONN}\n{SOMAXCONN}=5"})) == "5"

    def test_no_file_at_all_sets_nothing(self) -> None:
        assert files().settings == ()

    def test_a_link_to_nowhere_is_empty_and_still_hides(self) -> None:
        outputs = {
            "/etc/sysctl.d/a.conf": NONE,
            "/usr/lib/sysctl.d/a.conf": Output(out=f"{SOMAXCONN}=5"),
            MAIN_FILE: NONE,
        }
        sysctl_files = learned(SysctlFiles, outputs)
        assert sysctl_files.boot_setting(SOMAXCONN) is None

    def test_a_file_that_may_not_be_read_leaves_all_unknown(self) -> None:
        closed = Output(ended="error", err="Permission denied")
        why = learned(SysctlFiles, {"/etc/sysctl.d/a.conf": closed, MAIN_FILE: NONE})
        assert why == Unreadable("/etc/sysctl.d/a.conf: Permission denied; it can be read as root, with --sudo")

    @given(ANYTHING)
    def test_anything_in_a_file(self, text: str) -> None:
        sysctl_files = learned(SysctlFiles, {"/etc/sysctl.d/a.conf": Output(out=text), MAIN_FILE: NONE})
        assert isinstance(sysctl_files, SysctlFiles)
        sysctl_files.boot_setting(SOMAXCONN)


class TestLiveSettings:
    def test_white_space_is_made_single(self) -> None:
        live_settings = learned(LiveSettings, {sysctl_path(PORT_RANGE): Output(out="32768\t60999\n")})
        assert live_settings.values == {PORT_RANGE: "32768 60999"}

    def test_a_kernel_that_shows_none(self) -> None:
        assert "does not show" in refused(LiveSettings, dict.fromkeys(LiveSettings.probe.paths, NONE))

    def test_one_that_cannot_be_read(self) -> None:
        outputs = {sysctl_path(SOMAXCONN): Output(ended="error", err="Input/output error")}
        assert isinstance(learned(LiveSettings, outputs), Unreadable)

    def test_defaults(self) -> None:
        assert may_be_default(SOMAXCONN, "4096")
        assert not may_be_default(SOMAXCONN, "65535")
        assert not may_be_default(RESERVED_PORTS, "60000-60031")


class TestArriving:
    def test_devices_count(self) -> None:
        launch = LaunchConfig.from_environment({})
        assert expected_connections(launch, ["a", "b"], {"a": npus(16)}, None) == (24, 256)

    def test_ranks_of_a_host_that_are_given(self) -> None:
        launch = LaunchConfig.from_environment({}, ranks_per_host={"a": 2, "b": 4})
        assert expected_connections(launch, ["a", "b"], {"a": npus(16)}, None)[0] == 6

    @given(st.integers(1, 10**6))
    def test_never_fewer_than_the_ranks(self, ranks: int) -> None:
        launch = LaunchConfig.from_environment({}, world_size=ranks)
        assert expected_connections(launch, [], None, None)[1] >= max(256, ranks)


def test_conntrack() -> None:
    assert value_of(Conntrack, "12\n", "262144\n", "65536\n") == Conntrack(count=12, maximum=262144, buckets=65536)
    assert isinstance(value_of(Conntrack, "twelve", "1", "1"), Unreadable)
    assert type(learned(Conntrack, dict.fromkeys(Conntrack.probe.paths, NONE))) is Absent
