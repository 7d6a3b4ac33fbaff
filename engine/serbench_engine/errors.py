"""What can go wrong in the engine, as one tree. It does not know who shows it to the user.

EngineError
├── ConfigError         options that can't be; the message says what would be right
│   └── ModelError      no such model, weights that do not fit, a file that is none
├── RequestError        a request that can't be served, refused when it is added
├── BrokenCodecError    a codec raised, or made what is no payload; carries its traceback
├── TransportError      a sender or receiver that can't go on
│   └── TransportTimeout    nothing within the time given; names whom it waited for
└── WorkerError         a worker died or raised; carries rank and the worker's own traceback
    └── WorkerTimeout   a worker did not answer within the step timeout
PayloadRefused (Exception)  a worker could not decode a payload: the engine recovers, callers never see it
"""


class EngineError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(EngineError):
    """Options that can't be, alone or together."""


class ModelError(ConfigError):
    """A model that can't be found, read or fitted."""


class RequestError(EngineError):
    """A request that can't be served; refused when it is added, nothing else is harmed."""


class BrokenCodecError(EngineError):
    """A codec, a plug-in perhaps, raised or made what is no payload. ``traceback_text`` is its own, or empty."""

    def __init__(self, message: str, traceback_text: str = "") -> None:
        super().__init__(message)
        self.traceback_text = traceback_text


class TransportError(EngineError):
    """A sender or receiver that can't go on. ``receiver``: the number of the one a sender failed at, if known."""

    def __init__(self, message: str, receiver: int | None = None) -> None:
        super().__init__(message)
        self.receiver = receiver


class TransportTimeout(TransportError):
    """Nothing could be sent or received within the time given."""


class WorkerError(EngineError):
    """A worker died or raised. ``traceback_text`` is the worker's own, empty if it just died."""

    def __init__(self, rank: int, reason: str, traceback_text: str = "") -> None:
        super().__init__(f"worker {rank}: {reason}" + (f"\n{traceback_text}" if traceback_text else ""))
        self.rank = rank
        self.reason = reason
        self.traceback_text = traceback_text


class WorkerTimeout(WorkerError):
    """A worker did not answer within the step timeout."""


class PayloadRefused(Exception):
    """Worker ``rank``, in ``epoch``, could not use the payload of ``step``; it ran nothing."""

    def __init__(self, rank: int, epoch: int, step: int, reason: str) -> None:
        super().__init__(f"worker {rank} refused the payload of step {step} in epoch {epoch}: {reason}")
        self.rank = rank
        self.epoch = epoch
        self.step = step
        self.reason = reason
