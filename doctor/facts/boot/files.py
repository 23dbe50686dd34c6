"""The files that a host reads when it starts, as far as checks need them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from doctor.engine.fact import Absent, Fact, ProbeAnswer, Unreadable, read, unusable_reason
from doctor.engine.texts import filled
from doctor.facts.kernel import configuration_folders, sysctl_path

UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
CLOCK_SERVICES = (
    *("chronyd", "chrony", "systemd-timesyncd", "ntpd", "ntp", "ntpsec", "openntpd"),
    *("phc2sys", "ptp4l", "timemaster"),
)
SERVICES = ("tuned", "nvidia-fabricmanager", "nvidia-persistenced", *CLOCK_SERVICES)
MODULE_FOLDERS = configuration_folders("modules-load.d")
MODPROBE_FOLDERS = configuration_folders("modprobe.d")
TEMPORARY_FOLDERS = configuration_folders("tmpfiles.d")
LIMIT_FILES = ("/etc/security/limits.conf", "/etc/security/limits.d/*.conf")
LOGIN_FILES = ("/etc/pam.d/*",)
SERVICE_LIMIT_FILES = (
    *("/etc/systemd/system.conf", "/etc/systemd/system.conf.d/*.conf"),
    *("/etc/systemd/system/ssh.service.d/*.conf", "/etc/systemd/system/sshd.service.d/*.conf"),
)
"""What systemd gives to sshd, and so to logins; what comes later wins."""
SCRIPT_FILES = (
    *("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/init.d/boot.local", "/etc/crontab", "/etc/cron.d/*"),
    *("/var/spool/cron/root", "/var/spool/cron/crontabs/root", "/etc/udev/rules.d/*.rules"),
    *("/etc/NetworkManager/dispatcher.d/*", "/etc/network/interfaces", "/etc/network/interfaces.d/*"),
    *("/etc/network/if-up.d/*", "/etc/network/if-pre-up.d/*", "/etc/networkd-dispatcher/*/*"),
)
"""What else sets kernel settings when a host starts, its network among it; these are not followed."""
MAX_PROFILES = 32
TUNED_PROFILE = "/etc/tuned/active_profile"
TUNED_FOLDERS = ("/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles")
TUNED_FILES = (TUNED_PROFILE, *(f"{folder}/*/tuned.conf" for folder in TUNED_FOLDERS))


def unit_paths(service: str) -> tuple[str, ...]:
    """Files that exist where a service is started at boot, under systemd, System V and OpenRC; and its masks."""
    links = (f"{folder}/*.{kind}/{service}.service" for folder in UNIT_FOLDERS for kind in ("wants", "requires"))
    unit_files = (f"{folder}/{service}.service" for folder in UNIT_FOLDERS)
    return (*links, *unit_files, f"/etc/rc[0-9].d/S*{service}", f"/etc/runlevels/*/{service}")


class BootFiles(Fact, frozen=True):
    """The text of the files that are read when the host starts, by path.

    Raw output, from ``/etc/modules-load.d/gpu.conf``::

        nvidia-peermem

    Raw output, from ``/etc/security/limits.conf``::

        * - memlock unlimited
    """

    probe = read(
        "/etc/modules",
        *LIMIT_FILES,
        *LOGIN_FILES,
        *SERVICE_LIMIT_FILES,
        *SCRIPT_FILES,
        *TUNED_FILES,
        *(f"{folder}/*.conf" for folder in (*MODULE_FOLDERS, *MODPROBE_FOLDERS, *TEMPORARY_FOLDERS)),
        "/etc/fstab",
        "/etc/systemd/system/dev-shm.mount",
        "/etc/systemd/system/dev-shm.mount.d/*.conf",
        "/etc/hostname",
        "/etc/hosts",
        "/proc/1/comm",
        "/proc/modules",
        "/proc/cmdline",
        sysctl_path("kernel.osrelease"),
        sysctl_path("kernel.threads-max"),
        *(path for service in ("systemd-sysctl", *SERVICES) for path in unit_paths(service)),
        root=True,
        limit=1 << 17,
    )

    files: dict[str, str]
    closed: dict[str, str]
    """Files that are there and could not be read, and why."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> BootFiles:
        if "" in answer:
            answer.text()  # sudo did not get as far as the files
        read_files, closed = dict[str, str](), dict[str, str]()
        for path, output in answer.items():
            why = "" if output.ended == "absent" else unusable_reason(output)
            if why:
                closed[path] = why
            elif output.ended != "absent":
                read_files[path] = output.out
        if not read_files:
            raise Absent("none of the files that a host reads when it starts is there")
        return cls(files=read_files, closed=closed)

    def text(self, path: str) -> str:
        """A file's text; empty where it does not exist. Raises: Unreadable."""
        if path in self.closed:
            raise Unreadable(filled("{0}: {1}; it can be read as root, with --sudo", path, self.closed[path]))
        return self.files.get(path, "")

    def folder(self, *folders: str) -> dict[str, str]:
        """The files of folders as they are used: by name alone; one hides those of the same name in later folders.

        Raises: Unreadable.
        """
        by_name: dict[str, str] = {}
        for folder in folders:
            for path in sorted({*self.files, *self.closed}):
                if path.rpartition("/")[0] == folder:
                    by_name.setdefault(path.rpartition("/")[2], path)
        return {path: self.text(path) for _, path in sorted(by_name.items())}

    @property
    def init(self) -> str:
        """The name of the first process: ``systemd``."""
        return self.files.get("/proc/1/comm", "").strip()

    @property
    def kernel(self) -> tuple[int, int]:
        """Of the running kernel, which a reboot is taken to start again. Raises: Unreadable."""
        parts = self.text(sysctl_path("kernel.osrelease")).replace("-", ".").split(".")
        if len(parts) < 2 or not (parts[0] + parts[1]).isdecimal():
            raise Unreadable("the kernel's release is not known")
        return int(parts[0]), int(parts[1])

    def is_masked(self, service: str) -> bool:
        """Its unit is a link to /dev/null, or empty: it is never started."""
        unit_files = [path for folder in UNIT_FOLDERS if (path := f"{folder}/{service}.service") in self.files]
        return bool(unit_files) and not self.files[unit_files[0]].strip()

    def starts(self, service: str) -> bool:
        if self.is_masked(service):
            return False
        for path in self.files:
            folder, _, name = path.rpartition("/")
            if name == f"{service}.service" and folder.endswith((".wants", ".requires")):
                return True
            if re.fullmatch(rf"/etc/rc[2-5]\.d/S[0-9]*{re.escape(service)}", path):
                return True
            if path.startswith("/etc/runlevels/") and name == service:
                return True
        return False

    def names_setting(self, key: str) -> str:
        """The script, rule or tuned profile that names a sysctl outside of a comment and is run at boot; or empty."""
        spellings = key, key.replace(".", "/")
        if not any(spelling in text for text in self.files.values() for spelling in spellings):
            return ""  # as on most hosts, at once: this is asked for each setting
        spelled = re.compile(rf"(?<![\w.]){re.escape(key)}(?![\w.])|{re.escape(key.replace('.', '/'))}(?![\w/])")
        for path in (*self.scripts(), *self._tuned()):
            lines = self.files[path].splitlines()
            if any(spelled.search(line) for line in lines if line.lstrip()[:1] not in ("#", ";")):
                return path
        return ""

    def scripts(self) -> list[str]:
        """The files of `SCRIPT_FILES` that the host has."""
        return [path for path in self.files if any(fnmatchcase(path, pattern) for pattern in SCRIPT_FILES)]

    def _tuned(self) -> list[str]:
        """The files of the active profile, and of those that it includes, where tuned is started."""
        names = self.files.get(TUNED_PROFILE, "").split() if self.starts("tuned") else []
        paths: list[str] = []
        for name in names:  # grows by what is included
            places = [path for folder in TUNED_FOLDERS if (path := f"{folder}/{name}/tuned.conf") in self.files]
            for path in places[:1]:
                paths.append(path)
                options = (line.partition("=") for line in self.files[path].splitlines())
                included = [text.replace(",", " ").split() for key, _, text in options if key.strip() == "include"]
                fresh = [word for profile_names in included for word in profile_names if word not in names]
                names += fresh[: max(0, MAX_PROFILES - len(names))]
        return paths

    def modprobe_lines(self, command: str) -> list[list[str]]:
        """The fields of the lines of modprobe.d(5) with this command, in order. Raises: Unreadable."""
        lines = [line.split() for text in self.folder(*MODPROBE_FOLDERS).values() for line in text.splitlines()]
        return [fields for fields in lines if fields[:1] == [command] and len(fields) > 1]

    def modules(self) -> set[str]:
        """The kernel modules that files load, with ``_`` for ``-``. Raises: Unreadable.

        systemd-modules-load passes over those that are on a ``blacklist``.
        """
        texts = (self.text("/etc/modules"), *self.folder(*MODULE_FOLDERS).values())
        lines = [line.split() for text in texts for line in text.splitlines()]
        loaded = [fields[0] for fields in lines if fields and fields[0][0] not in "#;"]
        barred = [fields[1] for fields in self.modprobe_lines("blacklist") if self.init == "systemd"]
        idle = (["/bin/true"], ["/bin/false"])
        barred += [fields[1] for fields in self.modprobe_lines("install") if fields[2:] in idle]
        for name, _, value in (word.partition("=") for word in self.text("/proc/cmdline").split()):
            loaded += value.split(",") if name in ("modules_load", "modules-load") else []
            barred += value.split(",") if name in ("module_blacklist", "modprobe.blacklist") else []
        return {name.replace("-", "_") for name in loaded} - {name.replace("-", "_") for name in barred}
