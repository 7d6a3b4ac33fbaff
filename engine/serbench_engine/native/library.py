"""The compiled kernels as functions: loads them, and lays out what they are told. It imports no torch."""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np

from serbench_engine.native.compiler import NativeError, compiled_library

DTYPES: Final = ("float32", "bfloat16", "float16")
"""In the order of their numbers in C++."""


class Shape(ctypes.Structure):
    """See attention.h; so for the three that follow."""

    _fields_: ClassVar = [("heads", c_int32), ("kv_heads", c_int32), ("block_size", c_int32), ("scale", c_float)]


class Layer(ctypes.Structure):
    """See attention.h."""

    _fields_: ClassVar = [("keys", c_void_p), ("values", c_void_p), ("window", c_int64)]


class Step(ctypes.Structure):
    """See attention.h. It keeps the columns that it points to."""

    _fields_: ClassVar = [
        ("rows", c_int64),
        ("tokens", c_int64),
        ("width", c_int64),
        ("query_starts", c_void_p),
        ("seq_lens", c_void_p),
        ("blocks", c_void_p),
        ("slots", c_void_p),
    ]

    def __init__(self, query_starts: Any, seq_lens: Any, blocks: Any, slots: Any) -> None:
        """``query_starts`` [b + 1], ``seq_lens`` [b], ``blocks`` [b, width], ``slots`` [t]: arrays of integers."""
        self.columns = (
            np.ascontiguousarray(query_starts, np.int32),
            np.ascontiguousarray(seq_lens, np.int32),
            np.ascontiguousarray(blocks, np.int32),
            np.ascontiguousarray(slots, np.int64),
        )
        pointers = (column.__array_interface__["data"][0] for column in self.columns)
        super().__init__(len(seq_lens), len(slots), blocks.shape[1], *pointers)


class Vectors(ctypes.Structure):
    """See attention.h."""

    _fields_: ClassVar = [
        ("query", c_void_p),
        ("key", c_void_p),
        ("value", c_void_p),
        ("out", c_void_p),
        ("query_stride", c_int64),
        ("key_stride", c_int64),
        ("value_stride", c_int64),
    ]


class Kernels:
    """The functions of one loaded library. Each returns when it is done; other Python threads run meanwhile.

    Raises:
        NativeError: the library can't be loaded, or lacks a function.
    """

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
            self.attend: Callable[..., int] = library.serbench_attend
        except (OSError, AttributeError) as error:
            raise NativeError(f"{path} can't be loaded: {error}") from None
        library.serbench_attend.argtypes = [POINTER(Shape), POINTER(Layer), POINTER(Step), POINTER(Vectors), c_int]


def load_kernels(dtype: str, head_dim: int, target: str | None = None) -> Kernels:
    """The kernels for one of DTYPES and a head_dim, compiled if need be, for this CPU or for ``target`` (a flag).

    Raises:
        NativeError: see compiled_library and Kernels.
    """
    return Kernels(str(compiled_library({"DTYPE": DTYPES.index(dtype), "HEAD_DIM": head_dim}, target)))


@cache
def native_kernels(dtype: str, head_dim: int) -> Kernels | str:
    """As ``load_kernels``, but once, and with the reason where there are none."""
    try:
        return load_kernels(dtype, head_dim)
    except NativeError as error:
        return str(error)


def native_status() -> str:
    """Empty where kernels can be used; else why they can't, which makes a model several times slower on a CPU."""
    kernels = native_kernels("bfloat16", 64)
    return kernels if isinstance(kernels, str) else ""
