"""What a host is after a reboot, told from its files; and what is unknown because no file holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from doctor.engine.boot_form import BootForm, BootView
from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Absent, Output, ProbeAnswer, Unreadable, Visit
from doctor.engine.quantities import GIB, MIB
from doctor.engine.record import HostRecord
from doctor.facts.boot import FORMS, LoginUser, describe_login, kernel_settings, login_limits, npu_ports, services
from doctor.facts.boot.files import BootFiles
from doctor.facts.boot.firewall import BootFirewall, firewall_rules
from doctor.facts.boot.link_mtu import LinkFiles, interfaces, read_link_files
from doctor.facts.container import JobContainer
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.boot_rules import _simple_commands
from doctor.facts.firewall.rules import Chain, Rule, RuleTable
from doctor.facts.hccn.device_addresses import DeviceAddresses, HccnConf
from doctor.facts.hccn.traffic import TlsSwitches
from doctor.facts.interfaces import Interfaces, Link
from doctor.facts.kernel import Conntrack, ListenQueues, SysctlFiles
from doctor.facts.limits import Limit, ResourceLimits
from doctor.facts.memory import HostMemory
from doctor.facts.neighbour_table import NeighbourTable
from tests.checks.gpu_hosts import gpu, gpus, manager
from tests.checks.gpu_hosts import settings as settings_of_host
from tests.facts.answers import answered
from tests.facts.garbage import runs_on_python_3_6
from tests.facts.test_container import HOST
from tests.facts.test_container import answer as container_answer

KERNEL = {
    "/proc/sys/kernel/osrelease": "6.1.0-1",
    "/proc/1/comm": "systemd\n",
    "/proc/sys/kernel/threads-max": "64000\n",
}
MEMORY = HostMemory(total=64 * GIB, available=60 * GIB)


def files(texts: Mapping[str, str] = {}) -> BootFiles:
    outputs = {path: Output(out=text) for path, text in {**KERNEL, **texts}.items()}
    return BootFiles.read(ProbeAnswer(outputs))


def settings(texts: Mapping[str, str] = {}, init: str = "systemd") -> SysctlFiles:
    return SysctlFiles.read(
        ProbeAnswer({path: Output(out=text) for path, text in {**texts, "/proc/1/comm": init}.items()})
    )


def test_every_row_is_of_a_check_and_of_facts_that_it_needs() -> None:
    facts = {check.name: check.facts for check in load_checks()}
    assert set(FORMS) <= set(facts)
    for name, forms in FORMS.items():
        assert {form.fact for form in forms} <= facts[name], name
        assert len({form.fact for form in forms}) == len(forms)


def test_what_runs_on_hosts_runs_on_python_3_6() -> None:
    assert runs_on_python_3_6(describe_login)
    assert runs_on_python_3_6(read_link_files)


@pytest.mark.parametrize("unit", ["", "/etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service"])
def test_persistence_that_nothing_known_switches_on_is_not_called_lost(unit: str) -> None:
    host_files = files({unit: "[Service]\nExecStart=/usr/bin/nvidia-persistenced\n"} if unit else {})
    switched_off = services.persistence(host_files, gpus(gpu(persistence=False)))
    assert [one.persistence for one in switched_off.gpus] == [bool(unit)]
    if unit:
        assert services.persistence(host_files, gpus(gpu(persistence=True))).gpus[0].persistence
    else:
        with pytest.raises(Unreadable, match="nvidia-persistenced is not started at boot"):
            services.persistence(host_files, gpus(gpu(persistence=True)))


class TestSettings:
    def test_a_file_counts_and_else_what_the_kernel_begins_with(self) -> None:
        queues = kernel_settings.listen_queues(settings(), files(), MEMORY)
        assert (queues.somaxconn, queues.syn_backlog, queues.syncookies) == (4096, 4096, 1)
        small = settings({"/etc/sysctl.d/9.conf": "net.core.somaxconn = 128"})
        assert kernel_settings.listen_queues(small, files(), MEMORY).somaxconn == 128

    @pytest.mark.parametrize(
        ("path", "text"),
        [
            ("/etc/rc.local", "#!/bin/sh\nsysctl -w net.core.somaxconn=65535\n"),
            ("/etc/rc.d/rc.local", "echo 4096 > /proc/sys/net/core/somaxconn\n"),
            ("/etc/cron.d/tune", "@reboot root sysctl -q net.core.somaxconn=8192\n"),
            ("/etc/udev/rules.d/80-net.rules", 'RUN+="/sbin/sysctl net.core.somaxconn=1024"\n'),
            ("/etc/NetworkManager/dispatcher.d/30-tune", "sysctl net/core/somaxconn=1024\n"),
            ("/etc/network/interfaces", "up sysctl -w net.core.somaxconn=1024\n"),
        ],
    )
    def test_a_script_that_names_the_setting_makes_it_unknown(self, path: str, text: str) -> None:
        small = settings({"/etc/sysctl.d/9.conf": "net.core.somaxconn = 128"})
        with pytest.raises(Unreadable, match=rf"{path} names net.core.somaxconn and is run at boot"):
            kernel_settings.listen_queues(small, files({path: text}), MEMORY)
        for harmless in (
            f"# {text}".replace("\n", " "),
            text.replace("somaxconn", "somaxconn_x"),
            "sysctl kernel.pid_max=9",
        ):
            assert kernel_settings.listen_queues(small, files({path: harmless}), MEMORY).somaxconn == 128

    def test_a_setting_of_the_active_tuned_profile_is_unknown(self) -> None:
        small = settings({"/etc/sysctl.d/9.conf": "net.core.somaxconn = 128"})
        texts = {
            "/etc/systemd/system/multi-user.target.wants/tuned.service": "[Service]\n",
            "/etc/tuned/active_profile": "site\n",
            "/etc/tuned/site/tuned.conf": "[main]\ninclude = throughput\n",
            "/usr/lib/tuned/throughput/tuned.conf": "[main]\ninclude=site\n[sysctl]\nnet.core.somaxconn=>2048\n",
        }
        with pytest.raises(Unreadable, match=r"/usr/lib/tuned/throughput/tuned.conf names net.core.somaxconn"):
            kernel_settings.listen_queues(small, files(texts), MEMORY)
        idle = {path: text for path, text in texts.items() if "wants" not in path}
        other = {**texts, "/etc/tuned/active_profile": "balanced\n"}
        for held in (idle, other):
            assert kernel_settings.listen_queues(small, files(held), MEMORY).somaxconn == 128

    def test_an_old_kernel_begins_with_a_short_queue(self) -> None:
        old = files({"/proc/sys/kernel/osrelease": "4.19.90-2"})
        assert kernel_settings.listen_queues(settings(), old, MEMORY).somaxconn == 128

    def test_the_neighbour_table_is_that_of_a_file_or_of_the_kernel(self) -> None:
        now = NeighbourTable(limit=8192, overflows=3)
        assert kernel_settings.neighbour_table(settings(), files(), now) == NeighbourTable(1024, 0)
        larger = settings({"/etc/sysctl.d/9.conf": "net.ipv4.neigh.default.gc_thresh3 = 4096"})
        assert kernel_settings.neighbour_table(larger, files(), now) == NeighbourTable(4096, 0)
        hidden = NeighbourTable(None, 0)
        assert kernel_settings.neighbour_table(settings(), files(), hidden) == hidden

    def test_a_masked_loader_loads_nothing(self) -> None:
        masked = files({"/etc/systemd/system/systemd-sysctl.service": ""})
        big = settings({"/etc/sysctl.d/9.conf": "net.ipv4.ip_local_reserved_ports = 60000-60015"})
        assert kernel_settings.reserved_ports(big, masked).reserved == ()
        assert len(kernel_settings.reserved_ports(big, files()).reserved) == 1

    @pytest.mark.parametrize(("total", "queue"), [(24684092 << 10, 2048), (256 << 20, 128), (512 * GIB, 4096)])
    def test_the_queue_of_half_open_connections_goes_by_memory(self, total: int, queue: int) -> None:
        assert kernel_settings.default_syn_backlog(HostMemory(total=total, available=1)) == queue

    def test_where_the_memory_is_near_a_power_of_two_the_queue_is_unknown(self) -> None:
        near = HostMemory(total=32 * GIB - 900 * MIB, available=1)
        assert kernel_settings.default_syn_backlog(near) is None
        with pytest.raises(Unreadable, match=r"no file sets net\.ipv4\.tcp_max_syn_backlog"):
            kernel_settings.listen_queues(settings(), files(), near)

    def test_what_is_no_number_is_unknown(self) -> None:
        malformed = settings({"/etc/sysctl.d/9.conf": "net.core.somaxconn = many"})
        with pytest.raises(Unreadable, match="expected a number"):
            kernel_settings.listen_queues(malformed, files(), MEMORY)

    @pytest.mark.parametrize("text", ["60000-60015,x", "1-99999"])
    def test_ports_that_the_kernel_refuses_are_unknown(self, text: str) -> None:
        with pytest.raises(Unreadable, match="refuses"):
            kernel_settings.reserved_ports(
                settings({"/etc/sysctl.d/9.conf": f"net.ipv4.ip_local_reserved_ports={text}"}), files()
            )


class TestConnectionTable:
    NOW = Conntrack(count=9, maximum=524288)
    SET = {"/etc/sysctl.d/9.conf": "net.netfilter.nf_conntrack_max = 524288"}
    MODULE = {"/proc/modules": "nf_conntrack 172032 4 - Live 0x0\n"}

    def table(self, texts: Mapping[str, str], sysctl: Mapping[str, str] = {}) -> int:
        return kernel_settings.connection_table(settings(sysctl), files(texts), MEMORY, self.NOW).maximum

    def test_a_setting_before_its_module_is_loaded_is_no_setting(self) -> None:
        with pytest.raises(Unreadable, match="none loads nf_conntrack"):
            self.table(self.MODULE, self.SET)
        assert self.table({**self.MODULE, "/etc/modules-load.d/x.conf": "nf_conntrack\n"}, self.SET) == 524288

    def test_what_was_set_by_hand_is_lost(self) -> None:
        assert self.table(self.MODULE) == 262144
        assert (
            self.table({**self.MODULE, "/etc/modprobe.d/x.conf": "options nf_conntrack hashsize=131072\n"})
            == 8 * 131072
        )


class TestFiles:
    def test_a_file_that_may_not_be_read_is_no_empty_file(self) -> None:
        held = BootFiles.read(
            ProbeAnswer({"/etc/fstab": Output("error", err="Permission denied"), "/etc/hosts": Output()})
        )
        with pytest.raises(Unreadable, match="as root, with --sudo"):
            held.text("/etc/fstab")

    def test_sudo_that_failed_is_unreadable(self) -> None:
        with pytest.raises(Unreadable):
            BootFiles.read(ProbeAnswer({"": Output("error", err="sudo: a password is required")}))

    @pytest.mark.parametrize(
        ("path", "starts"),
        [
            ("/etc/systemd/system/multi-user.target.wants/chronyd.service", True),
            ("/usr/lib/systemd/system/sysinit.target.wants/chronyd.service", True),
            ("/etc/rc3.d/S20chronyd", True),
            ("/etc/rc6.d/S20chronyd", False),
            ("/etc/runlevels/default/chronyd", True),
            ("/usr/lib/systemd/system/chronyd.service", False),
        ],
    )
    def test_a_service_is_started_where_something_wants_it(self, path: str, starts: bool) -> None:
        assert files({path: "[Unit]\n"}).starts("chronyd") == starts

    def test_a_masked_service_is_not_started(self) -> None:
        wants = {"/etc/systemd/system/multi-user.target.wants/chronyd.service": "[Unit]\n"}
        assert not files({**wants, "/etc/systemd/system/chronyd.service": ""}).starts("chronyd")

    def test_modules_by_file_whose_name_a_later_folder_repeats(self) -> None:
        texts = {"/etc/modules-load.d/a.conf": "# one\n", "/usr/lib/modules-load.d/a.conf": "nvidia-peermem\n"}
        assert files(texts).modules() == set()

    @pytest.mark.parametrize(
        "more",
        [
            {"/usr/lib/modprobe.d/b.conf": "blacklist nvidia-peermem\n"},
            {"/etc/modprobe.d/b.conf": "install nvidia_peermem /bin/false\n"},
            {"/proc/cmdline": "quiet module_blacklist=a,nvidia_peermem\n"},
        ],
    )
    def test_a_module_that_may_not_be_loaded_is_not(self, more: dict[str, str]) -> None:
        load = {"/usr/local/lib/modules-load.d/a.conf": "nvidia-peermem\nib_core\n"}
        assert files({**load, **more}).modules() == {"ib_core"}
        assert files(load).modules() == {"ib_core", "nvidia_peermem"}
        assert files({"/proc/cmdline": "modules_load=ib_core"}).modules() == {"ib_core"}
        hidden = {"/usr/lib/modprobe.d/b.conf": "blacklist nvidia-peermem\n", "/etc/modprobe.d/b.conf": "# none\n"}
        assert files({**load, **hidden}).modules() == {"ib_core", "nvidia_peermem"}


@pytest.mark.parametrize(
    ("lines", "governor"),
    [
        (("w {} - - - - a", "w {} - - - - b"), "a"),
        (("w {} - - - - a", "w {}* - - - - b"), "b"),
        (("w {}* - - - - a", "w {} - - - - b", "w {}* - - - - c"), "b"),
        (("f+ {} - - - - a",), "a"),
        (("f {} - - - - a",), "k"),
    ],
)
def test_lines_of_tmpfiles_count_as_for_systemd_tmpfiles(lines: tuple[str, ...], governor: str) -> None:
    """Measured with systemd-tmpfiles 252."""
    path = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    texts = {f"/usr/local/lib/tmpfiles.d/{at}.conf": f"{line.format(path)}\n" for at, line in enumerate(lines)}
    boot_files = files({**texts, "/proc/cmdline": "cpufreq.default_governor=k"})
    after = kernel_settings.frequency_governors(boot_files, settings_of_host(governors=("x",)))
    assert after.governors == (governor,)


class TestSharedMemory:
    VIEW = answered(JobContainer, container_answer(root="ext4", namespaces=HOST))

    @pytest.mark.parametrize(
        ("line", "size"),
        [
            ("tmpfs /dev/shm tmpfs rw,size=64m 0 0", 64 * MIB),
            ("tmpfs /dev/shm tmpfs size=1g,size=25% 0 0", 16 * GIB),
            ("# tmpfs /dev/shm tmpfs size=64m 0 0", 32 * GIB),
            ("", 32 * GIB),
        ],
    )
    def test_its_size_is_that_of_the_file_or_half_of_the_memory(self, line: str, size: int) -> None:
        assert services.shared_memory(files({"/etc/fstab": line}), MEMORY, self.VIEW).size == size

    def test_who_mounts_it_without_systemd_is_not_known(self) -> None:
        with pytest.raises(Unreadable, match="no line of /etc/fstab"):
            services.shared_memory(files({"/proc/1/comm": "init"}), MEMORY, self.VIEW)

    @pytest.mark.parametrize("variable", ["KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER"])
    def test_that_of_a_container_is_set_outside(self, variable: str) -> None:
        """Also where no file of Docker or Podman marks it, and the control group is that of any process."""
        view = answered(JobContainer, container_answer(variables={variable: "10.0.0.1"}))
        with pytest.raises(Unreadable, match="container"):
            services.shared_memory(files(), MEMORY, view)

    def test_a_mark_that_an_image_left_on_a_machine_is_no_container(self) -> None:
        view = answered(JobContainer, container_answer(marks=["/.dockerenv"], root="ext4", namespaces=HOST))
        assert services.shared_memory(files(), MEMORY, view).size == 32 * GIB


class TestLimits:
    NOW = ResourceLimits(nofile=Limit(1 << 20, 1 << 20), memlock=Limit(None, None), nproc=Limit(None, None))
    ANN = LoginUser(uid=1000, user="ann", groups=("ann", "hpc"))
    ROOT = LoginUser(uid=0, user="root", groups=("root",))
    PAM = {
        "/etc/pam.d/sshd": "@include common-session\n",
        "/etc/pam.d/common-session": "session required pam_limits.so\n",
    }

    def limits(self, conf: str, login: LoginUser = ANN, **texts: str) -> ResourceLimits:
        return login_limits(files({**self.PAM, "/etc/security/limits.conf": conf, **texts}), login, self.NOW)

    MEMLOCK = "* - memlock unlimited\n"

    def test_the_closest_line_counts_and_no_line_for_all_is_for_root(self) -> None:
        conf = f"{self.MEMLOCK}ann soft nofile 4096\n* - nofile 65535\n@hpc hard nofile 131072\n"
        assert self.limits(conf).nofile == Limit(4096, 131072)
        with pytest.raises(Unreadable, match="no file sets the limit of locked memory"):
            self.limits(conf, self.ROOT)
        root = self.limits(f"{conf}root - memlock unlimited\n", self.ROOT)
        assert (root.nofile.soft, root.memlock.soft) == (1024, None)

    @pytest.mark.parametrize(
        ("conf", "limit"),
        [
            ("1000: - nofile 900\n", (900, 900)),
            ("900: - nofile 900\n", (900, 900)),
            (":1000 - nofile 900\n", (900, 900)),
            (":2000 - nofile 900\n", (1024, 1 << 20)),
            ("ann Hard NoFile 900\n", (900, 900)),
            ("ann soft nofile 4096\n* - nofile 9000\n", (4096, 1 << 20)),
            ("* soft nofile 4096\nann -\nann - nofile 900\n", (1024, 1 << 20)),
            ("@hpc -\nann - nofile 900\n", (1024, 1 << 20)),
            ("@root -\nbob -\nann - nofile 900\n", (900, 900)),
        ],
    )
    def test_lines_count_as_for_pam_limits(self, conf: str, limit: tuple[int, int]) -> None:
        """Measured with pam_limits of Linux-PAM 1.5.2, by `su`."""
        now = ResourceLimits(nofile=self.NOW.nofile, memlock=Limit(1 << 16, 1 << 16), nproc=self.NOW.nproc)
        limits = login_limits(files({**self.PAM, "/etc/security/limits.conf": conf}), self.ANN, now)
        assert limits.nofile == Limit(*limit)

    def test_a_range_of_groups_is_unknown(self) -> None:
        with pytest.raises(Unreadable, match="range of groups"):
            self.limits(f"{self.MEMLOCK}@0:2000 - nofile 900\n")

    def test_what_no_file_sets_is_what_a_login_begins_with(self) -> None:
        limits = self.limits(self.MEMLOCK)
        assert (limits.nofile.soft, limits.nproc.soft, limits.memlock.soft) == (1024, 32000, None)

    def test_lines_that_nothing_applies_are_no_limits(self) -> None:
        with pytest.raises(Unreadable):
            login_limits(files({"/etc/security/limits.conf": self.MEMLOCK}), self.ANN, self.NOW)

    def test_what_systemd_gives_to_sshd_counts(self) -> None:
        path = "/etc/systemd/system/ssh.service.d/l.conf"
        limits = login_limits(
            files({path: "[Service]\nLimitMEMLOCK=infinity\nLimitNOFILE=2K:1M\n"}), self.ANN, self.NOW
        )
        assert (limits.memlock, limits.nofile) == (Limit(None, None), Limit(2048, 1 << 20))


class TestNpuPorts:
    NOW = DeviceAddresses.read(ProbeAnswer({"0": Output(out="ipaddr:29.1.0.1\nnetmask:255.255.0.0\n")}))

    def conf(self, text: str) -> HccnConf:
        return HccnConf.read(ProbeAnswer({"/etc/hccn.conf": Output(out=text)}))

    def test_an_address_that_the_file_does_not_hold_is_lost(self) -> None:
        assert npu_ports.device_addresses(None, self.NOW).unset == (0,)
        kept = npu_ports.device_addresses(self.conf("address_0=29.1.0.7\nnetmask_0=255.255.0.0\n"), self.NOW)
        assert str(kept.by_npu[0]) == "29.1.0.7/16"

    def test_an_address_of_dhcp_is_unknown(self) -> None:
        assert list(npu_ports.device_addresses(self.conf("udhcpc_enable_0=1\n"), self.NOW).unread) == ["NPU 0"]

    def test_what_is_no_address_is_unknown(self) -> None:
        assert npu_ports.device_addresses(self.conf("address_0=x\nnetmask_0=255.0.0.0\n"), self.NOW).unread

    def test_a_switch_stays_where_the_file_says_nothing(self) -> None:
        now = TlsSwitches(by_npu={0: True, 1: True})
        assert npu_ports.tls_switches(self.conf("tls_enable_0=0\n"), now).by_npu == {0: False, 1: True}
        with pytest.raises(Unreadable):
            npu_ports.tls_switches(None, now)


class TestFirewall:
    BLOCKS = RuleTable("nft", "inet", "site", (Chain("in", (Rule("tcp dport 1 drop", '[{"drop":null}]'),), "input"),))
    ACCEPTS = RuleTable("nft", "inet", "nat", (Chain("in", (), "input"),))

    def rules(self, *tables: RuleTable) -> FirewallRules:
        return FirewallRules(tables=tables, local_addresses=("127.0.0.1",), bridges=())

    def test_a_table_that_nothing_loads_is_unknown_where_it_blocks(self) -> None:
        after = firewall_rules(
            BootFirewall(rules=self.rules(), idle=("nftables",)), self.rules(self.BLOCKS, self.ACCEPTS)
        )
        assert list(after.unread) == ["table inet site"]
        assert "nftables: not enabled" in after.unread["table inet site"]

    def test_a_table_that_is_loaded_is_judged_as_loaded(self) -> None:
        after = firewall_rules(BootFirewall(rules=self.rules(self.BLOCKS)), self.rules())
        assert (after.tables, after.unread) == ((self.BLOCKS,), {})

    def test_what_firewalld_has_now_goes_where_it_is_not_started_at_boot(self) -> None:
        now = self.rules(RuleTable("nft", "inet", "firewalld", self.BLOCKS.chains))
        after = firewall_rules(BootFirewall(rules=self.rules()), now)
        assert (after.tables, after.unread) == ((), {})

    @pytest.mark.parametrize(
        ("script", "commands"),
        [
            ("#!/bin/sh\n# nft x\nnft -f /etc/a.nft\nexit 0\nnft flush ruleset\n", [(["nft", "-f", "/etc/a.nft"], "")]),
            ("iptables-restore < /etc/rules\n", [(["iptables-restore"], "/etc/rules")]),
            ("/usr/sbin/nft add table inet f 2>/dev/null\n", [(["/usr/sbin/nft", "add", "table", "inet", "f"], "")]),
            ("echo hello\n", []),
        ],
    )
    def test_plain_commands_of_a_script_are_followed(self, script: str, commands: list[tuple[list[str], str]]) -> None:
        assert _simple_commands(script) == commands

    @pytest.mark.parametrize(
        "script",
        [
            "if true; then\nnft -f /etc/a\nfi\n",
            "test -x /usr/sbin/nft && nft -f /etc/a\n",
            "nft -f $FILE\n",
            "cat /etc/a | nft -f -\n",
            "iptables -A INPUT -j DROP; rm /x\n",
            "sudo nft -f /etc/a\n",
            "nft -f /etc/*.nft\n",
            "nft 'add table\n",
        ],
    )
    def test_what_depends_on_more_than_the_text_is_not_followed(self, script: str) -> None:
        with pytest.raises(ValueError):
            _simple_commands(script)


def test_a_form_that_breaks_is_unknown_and_no_crash() -> None:
    def broken(queues: ListenQueues) -> ListenQueues:
        raise KeyError("x\x1b[31m")

    record = HostRecord(Visit(), {"HostMemory": {"/proc/meminfo": Output(out="MemTotal: 8 kB\nMemAvailable: 4 kB\n")}})
    form = BootForm(ListenQueues, (HostMemory,), broken)
    view = BootView(FactCache({"a": record}), {ListenQueues: form})
    value = view.get("a", ListenQueues)
    assert isinstance(value, Unreadable) and "KeyError" in str(value) and str(value).isprintable()
    assert isinstance(view.get("a", HostMemory), HostMemory)


def test_a_form_is_as_absent_as_what_it_reads() -> None:
    form = BootForm(ListenQueues, (HostMemory,), lambda memory: memory)
    view = BootView(
        FactCache({"a": HostRecord(Visit(), {"HostMemory": {"/proc/meminfo": Output("absent")}})}), {ListenQueues: form}
    )
    assert isinstance(view.get("a", ListenQueues), Absent)


class TestFabric:
    ENABLED: Mapping[str, str] = {"/etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service": ""}
    REGISTERED = gpus(gpu(0, fabric_state="Completed", fabric_status="Success"))

    def test_gpus_register_where_the_service_is_enabled(self) -> None:
        running = manager(is_running=True, state="active")
        assert services.fabric_states(files(self.ENABLED), running, self.REGISTERED) == self.REGISTERED
        (lost,) = services.fabric_states(files(), running, self.REGISTERED).gpus
        assert lost.fabric_state == "Not Started"
        assert not services.fabric_manager(files(), running).is_running

    def test_a_manager_elsewhere_is_not_changed_by_a_reboot_of_this_host(self) -> None:
        """A virtual machine, or a compute tray whose manager runs on the switch trays."""
        for none_here in (manager(is_running=False, state="inactive"), manager(switches=0, is_running=False, state="")):
            assert services.fabric_states(files(), none_here, self.REGISTERED) == self.REGISTERED

    def test_what_another_program_than_the_service_starts_is_not_known(self) -> None:
        container = manager(is_running=True, state="inactive")
        with pytest.raises(Unreadable, match="not known"):
            services.fabric_states(files(), container, self.REGISTERED)
        with pytest.raises(Unreadable, match="not known"):
            services.fabric_manager(files(), container)
        assert services.fabric_manager(files(self.ENABLED), container).is_running


class TestLinkMtu:
    """The MTU of interfaces: of a file, of Ethernet, or unknown."""

    def after(self, now: int, *rows: tuple[str, str], changed: str = "", texts: Mapping[str, str] = {}) -> int:
        link = Link("eth0", True, True, False, now, "", True, False)
        of_now = Interfaces(links=(link,), addresses=(), routes=(), has_rules=False)
        return interfaces(files(texts), LinkFiles({"eth0": rows}, changed), of_now).links[0].mtu

    def test_a_file_counts_whatever_is_in_force(self) -> None:
        network = ("/etc/systemd/network/10-eth0.network", "9000")
        assert self.after(1500, network) == 9000, "set back by hand: the next boot has the large one again"
        assert self.after(9000, network, ("/usr/lib/systemd/network/99-default.link", "")) == 9000
        assert self.after(1500, ("/etc/sysconfig/network-scripts/ifcfg-eth0", "9K")) == 9 << 10
        assert self.after(1500, ("/etc/NetworkManager/system-connections/x", "0")) == 1500
        assert self.after(1500) == 1500

    @pytest.mark.parametrize(
        ("rows", "more"),
        [
            ((), {}),
            ((("a", "9000"), ("b", "4200")), {}),
            ((("a", "?"),), {}),
            ((("a", "9000"),), {"changed": "/etc/netplan/50.yaml"}),
            ((("a", "9000"),), {"texts": {"/etc/rc.local": "ip link set eth0 mtu 4200"}}),
        ],
    )
    def test_what_no_file_decides_is_unknown(self, rows: tuple[tuple[str, str], ...], more: dict[str, Any]) -> None:
        with pytest.raises(Unreadable):
            self.after(9000, *rows, **more)
