"""What can go wrong in the harness and on the command line, as one tree. It does not know how errors are shown.

SerbenchError
├── ExperimentError       options that can't be, alone or together
├── DatasetError          a file of prompts that can't be read; names the file and, where there is one, the line
├── ResultsError          stored runs that can't be found, read, written or compared
│   └── NotWrittenError       what was measured, or made of it, can't be written
├── OutputError           standard output that can't be written
└── FaultError            the engine broke a promise, so what was measured can't be right
    ├── OutputsDifferError    the same batches gave different outputs
    └── BrokenContractError   a codec does not do what codecs must; carries what shows it
"""


class SerbenchError(Exception):
    """Base of every error this package raises on purpose."""


class ExperimentError(SerbenchError):
    """Options that can't be, alone or together; the message says what would be right."""


class DatasetError(SerbenchError):
    """A file of prompts that can't be read."""


class ResultsError(SerbenchError):
    """Stored runs that can't be found, read, written or compared."""


class NotWrittenError(ResultsError):
    """What was measured, or made of it, can't be written: no fault of the command."""


class OutputError(SerbenchError):
    """Standard output can't be written."""


class FaultError(SerbenchError):
    """The engine broke a promise, so what was measured can't be right."""


class OutputsDifferError(FaultError):
    """The same batches gave different outputs."""


class BrokenContractError(FaultError):
    """A codec does not do what codecs must. ``shown_by``: lines of Python that show it, to be pasted as they are."""

    def __init__(self, message: str, shown_by: str) -> None:
        super().__init__(message)
        self.shown_by = shown_by
