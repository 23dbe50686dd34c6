"""A real Grid Engine over test hosts: its master on the first host, an execution daemon on each."""

from __future__ import annotations

import shutil
import time

from tests.hosts.fleet import INSIDE, Fleet

PROGRAMS = ("sge_qmaster", "sge_execd", "qsub", "qconf")
ABSENT_PROGRAMS = [name for name in PROGRAMS if not shutil.which(name) and not shutil.which(name, path="/usr/sbin")]
"""Programs that are not installed (Debian: gridengine-master, gridengine-exec, gridengine-client)."""

ROOT = "/tmp/grid-engine"
SETTINGS = "/usr/share/gridengine"
_PATIENCE = 60.0
_PREPARE = f"""
mkdir -p {ROOT}/default/common {ROOT}/spool/job_scripts {ROOT}/execd
ln -s {SETTINGS}/util {ROOT}/util
echo "$MASTER" >{ROOT}/default/common/act_qmaster
cat >{ROOT}/default/common/bootstrap <<'END'
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {ROOT}/default/common;{ROOT}/spool
binary_path /usr/sbin
qmaster_spool_dir {ROOT}/spool
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
END
"""
_MASTER = f"""set -e
cd /usr/lib/gridengine
./spoolinit classic libspoolc '{ROOT}/default/common;{ROOT}/spool' init
sed 's#^execd_spool_dir.*#execd_spool_dir {ROOT}/execd#; s#^mailer.*#mailer /bin/true#
     s#^gid_range.*#gid_range 20000-20100#; s#^min_[ug]id.*##' {SETTINGS}/default-configuration >{ROOT}/configuration
printf 'min_uid 0\\nmin_gid 0\\n' >>{ROOT}/configuration
./spooldefaults configuration {ROOT}/configuration
./spooldefaults complexes {SETTINGS}/util/resources/centry
./spooldefaults usersets {SETTINGS}/util/resources/usersets
./spooldefaults managers root
sge_qmaster
"""
_QUEUE = f"""set -e
cat >{ROOT}/pe <<'END'
pe_name mpi
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule 2
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
END
qconf -Ap {ROOT}/pe
qconf -sq | sed "s/^hostlist.*/hostlist $HOSTS/; s/^qname.*/qname all.q/; s/^slots .*/slots 8/
    s/^pe_list.*/pe_list mpi/; s#^shell .*#shell /bin/sh#; s/^load_thresholds.*/load_thresholds NONE/" >{ROOT}/queue
qconf -Aq {ROOT}/queue
"""


class GridEngine:
    """Jobs take two slots on each host: ``-pe mpi 6`` is three hosts. All ends with the hosts."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.master = fleet.hosts[0]
        self.environ = {
            **INSIDE,
            "SGE_ROOT": ROOT,
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": "6444",
            "SGE_EXECD_PORT": "6445",
        }
        for host in fleet.hosts:
            self._enter(host, f"MASTER={self.master}\n{_PREPARE}")
        self._enter(self.master, _MASTER)
        self._wait("qconf -sh")
        for host in fleet.hosts:
            self._enter(self.master, f"qconf -ah {host}; qconf -as {host}; true")
        for host in fleet.hosts:
            self._enter(host, "sge_execd")
        self._enter(self.master, f"HOSTS='{' '.join(fleet.hosts)}'\n{_QUEUE}")
        self._wait(f"test $(qhost | awk '$3 ~ /^[0-9]/' | wc -l) = {len(fleet.hosts)}")

    def _enter(self, host: str, text: str) -> str:
        return str(self.fleet.enter(host, text, env=self.environ).stdout)

    def _wait(self, test: str) -> None:
        """Until a shell test on the master's host succeeds."""
        deadline = time.monotonic() + _PATIENCE
        while self.fleet.enter(self.master, test, env=self.environ, check=False).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Grid Engine does not come up: {test}")
            time.sleep(0.2)

    def submit(self, text: str, *options: str, folder: str = "/tmp") -> tuple[int, str]:
        """Runs a job script to its end; returns its exit status, and what it printed."""
        self.fleet.enter(self.master, f"cat >{folder}/job.sh", input=text)
        message = " ".join(options)
        argv = (
            f"cd {folder} && rm -f job.out && qsub -terse -sync y -cwd -j y -o job.out {message} job.sh; echo ended $?"
        )
        output = self.fleet.enter(self.master, argv, env=self.environ, timeout=120).stdout
        printed = ""
        for host in self.fleet.hosts:  # the first of the job's hosts may be any
            printed += self.fleet.enter(host, f"cat {folder}/job.out 2>/dev/null; rm -f {folder}/job.out").stdout
        return int(output.rpartition("ended ")[2]), printed
