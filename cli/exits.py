"""Exit codes, and which error leads to which."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from enum import IntEnum

import click

from topo_cli.control_characters import printable

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ELOOP, errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG)
"""The system refuses a file, whatever topo does with it."""


class Exit(IntEnum):
    """Exit codes of the commands."""

    DONE = 0
    FAILED = 1
    """The operation failed; for `topo run`: not every message was processed."""
    USAGE = 2
    """Wrong arguments, a topology that has mistakes, or a name that does not exist."""
    UNREACHABLE = 3
    """The topology is known, but its master does not run."""
    TIMEOUT = 4
    """The event that the command waited for did not happen in time."""
    INTERRUPTED = 130
    UNREAD = 141
    """What reads the output has ended, as in `| head`: the code that a shell shows for a program that SIGPIPE has ended."""


class Failed(click.ClickException):
    """The operation failed; the message names the reason."""

    exit_code = Exit.FAILED


class TimedOut(click.ClickException):
    """The event that the command waited for did not happen in time; the message names it."""

    exit_code = Exit.TIMEOUT


def exit_of(error: BaseException) -> int:
    """Report an error on stderr, and return the exit code for it.

    Raises:
        BaseException: the error itself, when it is a fault of topo; so the traceback is shown.
    """
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if _is_unread(error):
        let_go_of_output()
        return Exit.UNREAD
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else Exit.FAILED
    if isinstance(error, click.ClickException):
        _say(error.show)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        _say(lambda: click.echo("interrupted", err=True))
        return Exit.INTERRUPTED
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        let_go_of_output()
        where = "" if error.filename is None else f" {_name_of(error.filename)}"
        _say(lambda: click.echo(f"Error: cannot write{where}: {error.strerror}; free the disk", err=True))
        return Exit.FAILED
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename is not None:
        _say(lambda: click.echo(f"Error: cannot use {_name_of(error.filename)}: {error.strerror}", err=True))
        return Exit.FAILED
    if isinstance(error, FileNotFoundError) and _is_folder_removed():
        _say(lambda: click.echo("Error: the folder in which this command was started was removed: cd into another one", err=True))
        return Exit.USAGE
    if isinstance(error, UnicodeEncodeError) and (encoding := sys.getfilesystemencoding()) != "utf-8":
        text = ascii(error.object[error.start : error.end])
        fix = "set PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8"
        _say(lambda: click.echo(f"Error: the encoding of this locale, {encoding}, cannot write {text}; {fix}", err=True))
        return Exit.USAGE
    # Imported late: most commands end without an error, and --help must be quick.
    from topo.errors import TopoError, TopoInternalError, UserError
    from topo.master_process.client import AnswerTimeout, Unreachable

    if not isinstance(error, TopoError) or isinstance(error, TopoInternalError):
        raise error
    _say(lambda: click.echo(printable(f"Error: {error}"), err=True))
    if isinstance(error, Unreachable):
        return Exit.UNREACHABLE
    if isinstance(error, AnswerTimeout):
        return Exit.TIMEOUT
    if isinstance(error, UserError):
        trace = getattr(error, "traceback", "")
        if trace:
            _say(lambda: click.echo(printable(trace.rstrip()), err=True))
        return Exit.USAGE
    return Exit.FAILED


def _is_unread(error: BaseException | None) -> bool:
    """Whether an error is that nothing reads the output any more; rich and `LazyGroup` make it a SystemExit."""
    if isinstance(error, SystemExit):
        error = error.__context__
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def _name_of(file: object) -> str:
    return printable(os.fsdecode(file)) if isinstance(file, str | bytes | os.PathLike) else str(file)


def _is_folder_removed() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _say(speak: Callable[[], object]) -> None:
    """Call a function that writes to stderr, which may be closed, too."""
    try:
        speak()
    except OSError:
        let_go_of_output()


def let_go_of_output() -> None:
    """Point streams that take no more at /dev/null: the interpreter would complain when it flushes them at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            # What could not be written is not always kept to be flushed; a closed terminal refuses even nothing.
            os.write(stream.fileno(), b"")
        except (OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
