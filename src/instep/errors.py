"""The error tree. Every message names the object, the cause and the next step.

InstepError
├── ProjectError            the project file or its secrets are wrong
├── SchemaError             a name, type or schema cannot be represented
│   └── IllegalChange       a change that the destination's format forbids
├── ConnectError            a database, catalog or store cannot be reached or refuses the login
│   └── AccessDenied        a login, a table or a column is refused, or was withdrawn
├── ReadError               the source failed during a read
│   ├── SourceLost          the server or program of the source has gone
│   └── LockYielded         a statement gave way to somebody who waits for its lock
├── StageError              staged files are not what was promised (counts, schema, disk)
├── DestinationError        the destination refused or is not ours
│   └── SparkNeeded         only Spark can do what was requested; nothing was started
├── NotFound                the named object does not exist, or is hidden from the caller
├── ChangeNotFound          no connection has the change that is named
├── Blocked                 a person or a policy has to decide first
├── Conflict                another run or person came first
│   ├── StalePlan           the schemas that a plan was made from have changed
│   ├── Fenced              a later run has claimed the table
│   └── RunInProgress       a run of this connection is in progress
└── SetupError              Java, jars or memory are missing
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import PurePath

from instep.redaction import blot


class InstepError(Exception):
    """Something went wrong. `transient`: the same may work when it is tried again later."""

    exit_code = 1
    transient = False

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        """Set `message` (what and where) and `hint` (the next step, shown on a line of its own). The secrets that
        this process knows are removed from both: an error is shown, stored and sent on."""
        self.message = blot(message) or (self.__doc__ or "").strip().splitlines()[0]
        self.hint = blot(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class ProjectError(InstepError):
    """The project file is not valid."""


class SchemaError(InstepError):
    """A name, type or schema cannot be represented."""


class IllegalChange(SchemaError):
    """The destination's format forbids this change."""


class ConnectError(InstepError):
    """The server cannot be reached or refuses the login."""

    exit_code = 4
    transient = True


class AccessDenied(ConnectError):
    """A login, a table or a column is refused, or was withdrawn."""

    transient = False


class ReadError(InstepError):
    """The source failed during a read."""

    transient = True


class SourceLost(ReadError):
    """The server or program of a source has gone, or does not answer any more, during a read."""

    exit_code = 4


class LockYielded(ReadError):
    """A statement was given up because another session waits for its lock: to be tried again. `broken`: not on the same
    connection."""

    broken = False
    closed: InstepError | None = None
    """Error to use if nobody waits: the server has closed the connection without a message."""


class StageError(InstepError):
    """Staged files are not what was promised."""

    transient = True


class DestinationError(InstepError):
    """The destination refused the request."""

    transient = True


class SparkNeeded(DestinationError):
    """The operation needs Spark; nothing was started."""

    transient = False


class NotFound(InstepError):
    """The object does not exist, or the asker may not see it."""

    @classmethod
    def of(cls, kind: str, name: str) -> NotFound:
        """Return the error for an object of this kind; the text does not tell a hidden one from a missing one."""
        listed = {"connection": "status", "rollout": "rollout status", "job": "queue list", "change": "changes list"}
        hint = f"see `instep {listed[kind]}`" if kind in listed else "check the name or the id"
        return cls(f"no {kind} {name!r} is known", hint=hint)


class ChangeNotFound(InstepError):
    """No connection whose source could be read has this change."""


class Forbidden(InstepError):
    """The asker's key may not do this."""

    exit_code = 4


class Blocked(InstepError):
    """A person or a policy has to decide first."""

    exit_code = 3


class Conflict(InstepError):
    """Another run or person came first."""

    exit_code = 5
    transient = True


class StalePlan(Conflict):
    """The schemas have changed since the plan was made: plan again."""


class Fenced(Conflict):
    """A later run has claimed the table."""


class RunInProgress(Conflict):
    """A run of this connection is in progress."""


class SetupError(InstepError):
    """Java, jars or memory are missing."""


def named(name: str, otherwise: type[InstepError] = InstepError) -> type[InstepError]:
    """Return the class of that name here, as errors are known by that were raised in another process."""
    found = globals().get(name)
    return found if isinstance(found, type) and issubclass(found, InstepError) else otherwise


def is_unreachable(error: BaseException) -> bool:
    """Return True if a whole source or destination could not be reached; a table that may not be read any more is
    less."""
    return isinstance(error, ConnectError) and not isinstance(error, AccessDenied)


HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move a cursor or turn text round: a server's text must not pass for ours."""


def visible(text: str) -> str:
    r"""Escape control characters (`\x1b`); line breaks and tabs stay."""
    return HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def escaped_json(document: str) -> str:
    """Return JSON in which the characters of `HIDDEN` are escapes that any parser reads."""
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def one_line(text: str) -> str:
    """Return the text as `visible` does, but also escape line breaks and tabs, so that it is one line."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def argument(name: str) -> str:
    """Return a name as one argument of a command that people may copy: a source can call a table what a shell would
    take for more than a name."""
    return shlex.quote(one_line(name))


def quoted(text: str, most: int = 500) -> str:
    """Return the text as `one_line` does, cut after `most` characters."""
    return one_line(text if len(text) <= most else f"{text[:most]} ... ({len(text):,} characters)")


def check_current_folder() -> None:
    """Raise ProjectError if the folder that this process runs in was deleted: no relative path leads anywhere."""
    try:
        os.getcwd()  # noqa: PTH109 - a Path is made of it without a look
    except OSError:
        raise ProjectError("the current folder is gone: it was deleted", hint="change to another folder") from None


def unwritable(path: PurePath, error: OSError) -> ProjectError:
    """Return the error for a file or folder of a project that cannot be written. Raises ProjectError itself if that is
    so because the current folder is gone."""
    if not path.is_absolute():
        check_current_folder()
    return ProjectError(f"{path} cannot be written: {error.strerror}", hint="check the folder's owner")
