"""Finds the logs of a host: regular files that patterns and folders name, the newest first."""

import glob
import os
import stat
import time

from doctor.remote.runtime.host_texts import filled

MAX_SEEN = 200000  # files that are looked at
MAX_EXAMPLES = 3


class Omissions:
    """What was left out, by reason: how many, and a few examples."""

    def __init__(self):
        self.by_reason = {}

    def add(self, reason, path):
        count, examples = self.by_reason.get(reason, (0, []))
        if len(examples) < MAX_EXAMPLES:
            examples = examples + [path]
        self.by_reason[reason] = (count + 1, examples)

    def rows(self):
        """Of [reason, count, examples]."""
        return [[reason, count, examples] for reason, (count, examples) in sorted(self.by_reason.items())]


class LogSearch:
    """`found` is (path, status) of each file, `unmatched` are the patterns that name nothing here."""

    def __init__(self, request, omissions):
        self.omissions = omissions
        self.skipped = set(request["skipped"])
        self.oldest = time.time() - request["age"] if request["age"] else 0
        self.files = {}
        self.unmatched = []
        self.file_count = 0

    def search(self, patterns):
        """Raises: OSError never; what cannot be read is an omission."""
        for pattern in patterns:
            before = self.file_count
            for path in self.expanded(pattern):
                self.add_named(path)
            if self.file_count == before and pattern not in self.unmatched:
                self.unmatched.append(pattern)

    def newest_first(self, most):
        """So many files as (path, status); empty ones last, as many of them would leave no place for logs."""
        files = sorted(self.files.values(), key=lambda item: (not item[1].st_size, -item[1].st_mtime, item[0]))
        for path, _ in files[most:]:
            self.omissions.add(filled("more than {0} files", most), printable_path(path))
        return files[:most]

    def expanded(self, pattern):
        pattern = os.path.expanduser(pattern)
        if not glob.has_magic(pattern) or os.path.lexists(pattern):
            return [pattern]
        return glob.iglob(pattern, recursive=True)

    def add_named(self, path):
        """A file or folder that the pattern itself names. A link is followed if its maker may decide where it leads."""
        try:
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                if status.st_uid not in (0, os.geteuid()):
                    self.omit("a link of another user", path)
                    return
                status = os.stat(path)
        except OSError as error:
            if os.path.lexists(path) or not isinstance(error, FileNotFoundError):
                self.omit(error.strerror, path)
            return
        if stat.S_ISDIR(status.st_mode):
            self.walk(path)
        else:
            self.add(path, status)

    def walk(self, folder):
        """All below a folder; links within it are not followed, so that there is no end of them."""
        self.file_count += 1
        for parent, folders, names in os.walk(folder, onerror=self.omit_folder):
            folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
            for name in names:
                path = os.path.join(parent, name)
                if os.path.splitext(name)[1] in self.skipped:
                    continue
                try:
                    status = os.lstat(path)
                except OSError as error:
                    self.omit(error.strerror, path)
                    continue
                if stat.S_ISLNK(status.st_mode):
                    self.omit("a link", path)
                else:
                    self.add(path, status)
                if self.file_count > MAX_SEEN:
                    self.omit(filled("more than {0} files", MAX_SEEN), path)
                    return

    def omit_folder(self, error):
        self.omit(error.strerror, error.filename)

    def omit(self, reason, path):
        self.file_count += 1
        self.omissions.add(reason, printable_path(path))

    def add(self, path, status):
        self.file_count += 1
        if not stat.S_ISREG(status.st_mode):
            self.omissions.add("no regular file", printable_path(path))
        elif status.st_mtime < self.oldest:
            self.omissions.add("older than asked for", printable_path(path))
        else:
            self.files.setdefault((status.st_dev, status.st_ino), (path, status))


def printable_path(path):
    """A path as text; bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
