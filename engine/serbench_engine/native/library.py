"""The compiled kernels as functions: loads them once, or says why they can't be had. It imports no torch.

What their arguments mean is told in attention.h and layers.h.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, ClassVar, Final

import numpy as np

from serbench_engine.native.compiler import NativeError, Source, compiled_library

DTYPES: Final = ("float32", "bfloat16", "float16")
"""In the order of their numbers in C++."""


class Shape(ctypes.Structure):
    """What a model's layers share in attention."""

    _fields_: ClassVar = [("heads", c_int32), ("kv_heads", c_int32), ("block_size", c_int32), ("scale", c_float)]


class Layer(ctypes.Structure):
    """The pages of one layer."""

    _fields_: ClassVar = [("keys", c_void_p), ("values", c_void_p), ("window", c_int64)]


class Step(ctypes.Structure):
    """What one step's layers share in attention. It keeps the columns that it points to."""

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
    """Where one layer's queries, keys, values, their angles and results are."""

    _fields_: ClassVar = [
        ("stacked", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("out", c_void_p),
        ("stride", c_int64),
    ]


class Weight(ctypes.Structure):
    """A linear layer's weight in panels, and its bias."""

    _fields_: ClassVar = [("panels", c_void_p), ("bias", c_void_p), ("inputs", c_int64), ("outputs", c_int64)]


class Product(ctypes.Structure):
    """What is multiplied by a weight, and what is done with the result."""

    _fields_: ClassVar = [
        ("x", c_void_p),
        ("other", c_void_p),
        ("out", c_void_p),
        ("rows", c_int64),
        ("x_stride", c_int64),
        ("other_stride", c_int64),
        ("then", c_int32),
    ]


class AttentionKernels:
    """Attention for one dtype and head_dim. It returns when it is done; other Python threads run meanwhile.

    Compiled if need be, for this CPU or for ``target``, a compiler's flag.

    Raises:
        NativeError: see ``compiled_library``; or the library can't be loaded.
    """

    def __init__(self, dtype: str, head_dim: int, target: str | None = None) -> None:
        load = _Loader(["attention.cpp"], {"DTYPE": DTYPES.index(dtype), "HEAD_DIM": head_dim}, target)
        self.attend = load("attend", POINTER(Shape), POINTER(Layer), POINTER(Step), POINTER(Vectors), c_int)


class LayerKernels:
    """The other layers' work for one dtype; otherwise as AttentionKernels."""

    def __init__(self, dtype: str, target: str | None = None) -> None:
        load = _Loader(["product.cpp", "rows.cpp"], {"DTYPE": DTYPES.index(dtype)}, target)
        size, pointer = c_int64, c_void_p
        self.product_pays: bool = bool(load("product_pays")())
        self.panel_words = load("panel_words", size, size, returns=size)
        self.pack = load("pack", pointer, size, size, pointer, c_int)
        self.product = load("product", POINTER(Weight), POINTER(Product), c_int)
        self.embed = load("embed", POINTER(Weight), pointer, size, pointer, c_int)
        self.rms_norm = load("rms_norm", pointer, size, size, size, size, pointer, c_float, pointer, c_int)
        self.layer_norm = load("layer_norm", pointer, size, size, pointer, pointer, c_float, pointer, c_int)
        self.gate = load("gate", pointer, size, size, pointer, c_int)
        self.likeliest = load("likeliest", pointer, size, size, pointer, c_int)


class _Loader:
    """Finds functions by their names in a library, and tells ctypes their arguments."""

    def __init__(self, sources: Sequence[Source], macros: dict[str, int], target: str | None) -> None:
        self._path = compiled_library(sources, macros, target)
        try:
            self._library = ctypes.CDLL(str(self._path))
        except OSError as error:
            raise NativeError(f"{self._path} can't be loaded: {error}") from None

    def __call__(self, name: str, *arguments: Any, returns: Any = c_int) -> Callable[..., int]:
        function = getattr(self._library, f"serbench_{name}")
        function.argtypes, function.restype = arguments, returns
        return function  # type: ignore[no-any-return]


@cache
def attention_kernels(dtype: str, head_dim: int) -> AttentionKernels | str:
    """This machine's, made once; or the reason why there are none."""
    try:
        return AttentionKernels(dtype, head_dim)
    except NativeError as error:
        return str(error)


@cache
def layer_kernels(dtype: str) -> LayerKernels | str:
    """This machine's, made once; or the reason why there are none."""
    try:
        return LayerKernels(dtype)
    except NativeError as error:
        return str(error)


def native_status(dtype: str = "bfloat16", head_dim: int = 64) -> str:
    """Empty where kernels can be used; else why they can't, which makes a model much slower on a CPU."""
    kernels = attention_kernels(dtype, head_dim)
    return kernels if isinstance(kernels, str) else ""
