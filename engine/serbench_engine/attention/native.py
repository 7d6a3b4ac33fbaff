"""Attention by a C++ kernel that reads pages in place, for CPUs. It does not know models, nor how kernels are made."""

from ctypes import byref

import torch
from torch import Tensor

from serbench_codecs.plan import Int32Array
from serbench_engine.attention.base import Attend, AttentionShape, CacheShape, allocate_cache
from serbench_engine.layers.rows import Angles
from serbench_engine.native.compiler import NativeError
from serbench_engine.native.library import AttentionKernels, Layer, Shape, Step, Vectors, attention_kernels
from serbench_engine.runner.inputs import StepInputs


class NativeAttention:
    """The backend for ``--device cpu`` where there are kernels. It uses as many threads as torch does.

    What comes out for a row depends on that row alone: not on its batch mates, nor on the number of threads.
    ``kernels``: others than this machine's best.

    Raises:
        NativeError: there are none here; said before the cache is allocated.
    """

    def __init__(self, shape: AttentionShape, cache: CacheShape, kernels: AttentionKernels | None = None) -> None:
        found = kernels or attention_kernels(str(cache.dtype).removeprefix("torch."), shape.head_dim)
        if isinstance(found, str):
            raise NativeError(found)
        self._run = found.attend
        self._block_size = cache.block_size
        self._size = shape.num_heads * shape.head_dim
        self.layers = allocate_cache(shape, cache)
        self._shape = Shape(shape.num_heads, shape.num_kv_heads, cache.block_size, shape.scale)
        self._native_layers = [
            Layer(layer.keys.data_ptr(), layer.values.data_ptr(), window)
            for layer, window in zip(self.layers, shape.windows, strict=True)
        ]

    def begin(self, inputs: StepInputs, block_table: Int32Array) -> Attend:
        """See AttentionBackend.begin."""
        width = -(-int(inputs.seq_lens.max(initial=1)) // self._block_size)
        blocks = block_table[inputs.rows, :width]  # ``take`` would copy the whole table first
        step = byref(Step(inputs.query_starts, inputs.seq_lens, blocks, inputs.slots))
        run, shape, layers, size = self._run, byref(self._shape), self._native_layers, self._size
        threads, tokens = torch.get_num_threads(), len(inputs.slots)

        def attend(layer: int, stacked: Tensor, angles: Angles | None) -> Tensor:
            out = stacked.new_empty((tokens, size))
            cos, sin = (x.data_ptr() for x in angles) if angles else (None, None)
            stride, last = stacked.stride()
            if last != 1:
                raise ValueError("a token's vectors must lie side by side")
            vectors = Vectors(stacked.data_ptr(), cos, sin, out.data_ptr(), stride)
            if run(shape, layers[layer], step, vectors, threads):
                raise MemoryError(f"no memory for the attention of {tokens} tokens")
            return out

        return attend
