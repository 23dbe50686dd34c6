import posixpath
from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.path_contents import JobPaths, PathState

NOTHING_THERE = "not there"
OF_THE_KERNEL = ("/proc/", "/sys/")
"""Folders whose files rsync cannot write: it makes a file beside the old one, and the kernel allows none."""


@check(severity=ERROR, area="versions")
def job_path_differs(paths: PerHost[JobPaths]) -> Iterator[Finding]:
    """The files and folders named with --path are on every host, with the same content.

    ## Why it matters
    A rank whose data, code, tokenizer or configuration is another one fails at start, or trains on something else: the
    loss is wrong and no message says so.

    ## What to do
    - Files: on {host}, copy it from a host that has the right one: `rsync -a {holder}:{source} {source}`; on a shared
      file system, check that it is mounted from the same server (`findmnt -T {path}`).
    - Kernel: it is a value of the kernel of {host}, and no file to copy. `findmnt -n -o TARGET {path}` prints something
      where another file is mounted over it: `umount {path}`. Where it prints nothing, write the value that `cat {path}`
      prints on {holder}: `echo <value> > {path}`.

    ## Source
    `doctor check --path PATH`, repeatable; else it is left out. Files are compared by SHA-256 up to 4 GiB, beyond by
    size and by their first and last mebibyte; folders by the names, sizes and contents of up to 20,000 files. What more
    than half of the hosts have is the norm; without such a majority all are named.
    """
    names = sorted({name for host_paths in paths.values() for name in host_paths.states})
    if not names:
        raise Skip("no path was named with --path")
    for name in names:
        states = {host: host_paths.states[name] for host, host_paths in paths.items() if name in host_paths.states}
        without = [host for host, state in states.items() if not state.kind]
        if without:
            yield Finding(
                "{path} is {observed}",
                hosts=without,
                path=name,
                observed=NOTHING_THERE,
                expected="a file or folder",
                **_copy(name, next(((h, s) for h, s in states.items() if s.kind in ("file", "folder")), None)),
            )
        refused = [host for host, state in states.items() if state.kind and state.problem]
        for host in refused:
            yield Finding(
                "{path}: {observed}", hosts=[host], path=name, observed=states[host].problem, **_copy(name, None)
            )
        readable = {host: state for host, state in states.items() if state.kind and not state.problem}
        if len(set(readable.values())) < 2:
            continue
        norm, count = Counter(readable.values()).most_common(1)[0]
        others = [host for host, state in readable.items() if state != norm or count <= len(readable) / 2]
        yield Finding(
            "{path} differs: {observed}; on {count} of {total} hosts {expected}",
            hosts=others,
            path=name,
            observed=sorted({readable[host].describe() for host in others}),
            expected=norm.describe(),
            **_copy(name, next(((h, s) for h, s in readable.items() if s == norm and h not in others), None)),
            count=count,
            total=len(readable),
        )


def _copy(path: str, right: tuple[str, PathState] | None) -> dict[str, str | None]:
    """From where to copy the path, if a host has the right one."""
    folder = right is not None and right[1].kind == "folder" and not path.endswith("/")
    return {
        "holder": right[0] if right else None,
        "source": f"{path}/" if folder else path,
        "case": "Kernel" if f"/{posixpath.normpath(path).lstrip('/')}/".startswith(OF_THE_KERNEL) else "Files",
    }
