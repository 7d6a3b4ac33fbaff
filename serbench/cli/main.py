"""The console script: signals and standard streams first, then everything else. It does not know any command.

Next to nothing is imported before signals are handled (not even typing, which takes half as long as Python's own
start), so that an early Ctrl-C shows no traceback of an import.
"""

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_MOMENT_S = 0.01


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. For KeyboardInterrupt itself, once it came through ``exec`` (dataclasses use it), Python would end the
    process by the signal, whatever exit code was asked for.
    """


class Terminated(KeyboardInterrupt):
    """SIGTERM: it ends what Ctrl-C ends, in the same way, with an exit code of its own."""


def main() -> None:
    """Run the command line; it ends the process."""
    _on_ending_signals(_end_at_once)
    _find_modules_here()
    from serbench.cli.commands import cli
    from serbench.cli.streams import prepare_streams

    prepare_streams()
    sys.unraisablehook = _not_lost
    _on_ending_signals(_raise)
    cli()


def raise_no_more() -> None:
    """Let signals end the process at once: all is closed, and what is left to do may be left undone."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is _raise:
            signal.signal(number, signal.SIG_DFL)


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that became ``error``, if one did: a module in C that begins makes an ImportError of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or (error.__context__ if isinstance(error, ImportError) else None)
    return error


def _on_ending_signals(handler: "signal._HANDLER") -> None:
    """Handle SIGINT and SIGTERM, but for those that whoever started the process wants ignored."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end_at_once(number: int, frame: object) -> None:
    """Nothing has begun yet: there is nothing to keep or close."""
    try:
        os.write(2, b"serbench: interrupted\n" if number == signal.SIGINT else b"serbench: terminated\n")
    finally:
        os._exit(128 + number)


def _raise(number: int, frame: "FrameType | None") -> None:
    while frame is not None:
        if frame.f_code is _not_lost.__code__:  # what is raised in there is dropped too
            _send_later(number)
            return
        frame = frame.f_back
    raise Interrupted if number == signal.SIGINT else Terminated


def _not_lost(ignored: "sys.UnraisableHookArgs") -> None:
    """Python drops what a signal's handler raises while an object is thrown away, in __del__: send the signal again."""
    if isinstance(ignored.exc_value, Interrupted | Terminated):
        _send_later(signal.SIGINT if isinstance(ignored.exc_value, Interrupted) else signal.SIGTERM)
    else:
        sys.__unraisablehook__(ignored)


def _send_later(number: int) -> None:
    """Send this process the signal in a moment. By the system's timer: a thread's start could itself be interrupted."""
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), number))
    signal.setitimer(signal.ITIMER_REAL, _MOMENT_S)


def _find_modules_here() -> None:
    """Let ``--codec module:NAME`` find modules of the current folder, after all others: none of those is hidden."""
    from contextlib import suppress

    with suppress(FileNotFoundError):  # a folder that was removed
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
