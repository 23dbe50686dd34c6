"""What a process that sleeps in a function of the kernel waits for: one table for every program that reads a wchan.

Python 3.6, standard library, ASCII. Sources: Linux 4.18 to 6.12, fs/, net/9p/, net/sunrpc/, kernel/locking/;
Lustre 2.15 (ptlrpc/client.c, ldlm/ldlm_request.c); the symbols of IBM Storage Scale's module.
"""

import re

# Kind of call, from whose functions a signal wakes -> these functions of the kernel: where reading the call needs
# rights that reading the function does not.
KERNEL_CALLS = (
    ("futex", "futex\\w*"),
    ("sleep", "hrtimer_nanosleep\\w*|do_nanosleep"),
    ("poll", "poll_schedule_timeout|ep_poll|do_epoll_wait|do_sys_poll|do_select"),
    ("wait", "do_wait|kernel_wait4"),
    ("read", "(anon_)?pipe_read|n_tty_read"),
    ("open", "fifo_open|wait_for_partner"),
    ("recv", "unix_stream_(data_wait|read_generic)|sk_wait_data"),
    ("accept", "inet_csk_accept"),
    ("stop", "do_signal_stop"),
)
# Kind -> functions of the kernel, and what they wait for. None of them waits for another rank: gloo's threads wait for
# a futex, and sockets of the network are in other functions. ``file``: of a file system.
KERNEL_WAITS = (
    ("time", "hrtimer_nanosleep|do_nanosleep", "a time"),
    ("lock", "fcntl_setlk|(locks|flock)_lock_inode_wait|do_semtimedop", "a lock that another process holds"),
    ("pipe", "wait_for_partner|(anon_)?pipe_(read|write)", "the other end of a pipe"),
    ("child", "do_wait|kernel_wait4", "a child process"),
    ("signal", "sigsuspend|do_sigtimedwait", "a signal"),
    ("message", "do_msg(rcv|snd)|eventfd_read|inotify_read", "a message of another process"),
    (
        "socket",
        "unix_stream_(data_wait|read_generic)|unix_wait_for_peer|sock_alloc_send_pskb",
        "another process of its host",
    ),
    ("terminal", "n_tty_(read|write)", "its terminal"),
    ("file.user", "(fuse_|__fuse_)?request_wait_answer|fuse_get_req", "the program that serves a file system (FUSE)"),
    (
        "file.nfs",
        "(nfs|rpc)_wait_bit_killable|nfs_wait_(client_init_complete|on_request)|nfs4?_delay_killable",
        "the server of a file system (NFS)",
    ),
    ("file.9p", "p9_(client_(rpc|zc_rpc)|virtio_(zc_)?request)", "the host of its virtual machine, for a file (9P)"),
    ("file.autofs", "autofs4?_wait", "the automounter (autofs)"),
    ("file.smb", "wait_for_(response|free_credits|compound_request)", "the server of a file system (SMB)"),
    (
        "file.ceph",
        "ceph_(mdsc_(do|wait)_request|osdc_wait_request|mdsc_submit_request)",
        "the servers of a file system (Ceph)",
    ),
    (
        "file.lustre",
        "ptlrpc_(set|queue)_wait|cl_sync_io_wait|ldlm_completion_ast\\w*|obd_get_\\w*request_slot|ll_file_\\w+",
        "the servers of a file system (Lustre)",
    ),
    ("file.scale", "cxiWaitEventWait|_ZN6ThCond\\w+", "the servers of a file system (Storage Scale)"),
    (
        "file.frozen",
        "percpu_rwsem_wait|__?percpu_down_read|__sb_start_write|sb_wait_write",
        "a frozen file system (fsfreeze), until it is thawed",
    ),
    ("file.scanner", "fanotify_(handle_event|get_response)", "a program that allows or denies each open (fanotify)"),
    (
        "file.folder",
        "d_alloc_parallel|rwsem_down_(read|write)_(slowpath|failed)\\w*",
        "a lock of the kernel that another process holds, as in a folder that does not answer",
    ),
)


def _with_form(row):
    """The row of a table with an expression in the place of its functions."""
    return (row[0], re.compile("_*(?:%s)(?:\\.[\\w.]{1,40})?$" % row[1])) + row[2:]


_CALLS, _FORMS = tuple(map(_with_form, KERNEL_CALLS)), tuple(map(_with_form, KERNEL_WAITS))


def kernel_call(function: str) -> str:
    """The kind of call that sleeps in a kernel's function; empty where that is not known.

    >>> kernel_call("futex_wait_queue"), kernel_call("do_wait_for_common")
    ('futex', '')
    """
    return next((kind for kind, form in _CALLS if form.match(function)), "")


def kernel_wait(function: str) -> "tuple[str, str] | None":
    """(kind, what it waits for) of a kernel's function, such as one of /proc/PID/wchan; None where it is not known.

    >>> kernel_wait("autofs_wait.isra.0")
    ('file.autofs', 'the automounter (autofs)')
    """
    return next(((kind, meaning) for kind, form, meaning in _FORMS if form.match(function)), None)
