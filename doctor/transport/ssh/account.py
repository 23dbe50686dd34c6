"""The account of the user who runs doctor, as far as SSH needs one."""

from __future__ import annotations

import os
import pwd

from doctor.engine.errors import InputError
from doctor.engine.texts import filled


def own_account() -> pwd.struct_passwd:
    """Raises: InputError, where no user has this number, as in many containers: ssh itself refuses to start there."""
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        text = filled("the user {0} has no entry in /etc/passwd, and SSH needs one", os.getuid())
        raise InputError(text) from None
