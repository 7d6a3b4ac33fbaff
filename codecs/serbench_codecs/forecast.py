"""What both ends of ``columnar`` can tell without being told: where a row's next block goes, and which batch runs.

It does not know the layout of a payload. A forecast needs no scheduler: it may be wrong, and then the batch is sent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from serbench_codecs.plan import NO_ROWS, Admissions, Int32Array, StepPlan
from serbench_codecs.table import TableLimits


class Forecast:
    """Follows the plans of a session. Its copies at the two ends are fed the same plans and stay equal.

    ``rows`` and ``counts``: the last batch, the very arrays of its plan.
    """

    def __init__(self, limits: TableLimits) -> None:
        self.rows: Int32Array = NO_ROWS
        self.counts: Int32Array = NO_ROWS
        self._num_blocks: Int32Array = np.zeros(limits.max_num_seqs, dtype=np.int32)
        self._left = np.zeros(limits.max_num_seqs, dtype=np.int32)  # tokens that the next step could compute
        # The same two, for one row: a Python number, and quicker.
        self._held, self._to_compute = self._num_blocks.data, self._left.data
        self._index = NO_ROWS.astype(np.intp)  # ``rows``, as numpy indexes
        self._next_index = self._index  # and those that ``batch`` told last
        self._steady = False  # every row of the batch computes its only token: the next step changes nothing here

    def admit(self, admitted: Admissions) -> None:
        """Note how many blocks and uncomputed tokens the admitted rows have."""
        held, to_compute = self._held, self._to_compute
        tokens, blocks = admitted.token_ids.offsets.tolist(), admitted.block_ids.offsets.tolist()
        computed = admitted.num_computed_tokens.tolist()
        for i, row in enumerate(admitted.rows.tolist()):
            held[row] = blocks[i + 1] - blocks[i]
            to_compute[row] = tokens[i + 1] - tokens[i] - computed[i]
        self._steady = False

    def next_blocks(self, rows: npt.NDArray[np.intp]) -> Int32Array:
        """Where the next block of each of ``rows`` goes, int32[n]. Indices of the machine's width are far quicker."""
        starts: Int32Array = self._num_blocks[rows]
        return starts

    def hold(self, rows: npt.NDArray[np.intp], ends: Any) -> None:
        """Note that ``rows`` hold blocks up to ``ends`` (int32[n]), which are no fewer than before."""
        self._num_blocks[rows] = ends

    def append(self, rows: Sequence[int], starts: Sequence[int]) -> bool:
        """Note that each of ``rows`` gets a block at its start; False at the first row where its next doesn't go there.

        Then ``hold`` notes all of them. For a few rows, as ``append_next``: one by one they take less time than numpy
        needs to begin.
        """
        held = self._held
        for i, row in enumerate(rows):
            start = starts[i]
            if held[row] != start:
                return False
            held[row] = start + 1
        return True

    def append_next(self, rows: Sequence[int]) -> list[int]:
        """Note that each of ``rows`` gets its next block: where these go."""
        held, starts = self._held, []
        for row in rows:
            start = held[row]
            starts.append(start)
            held[row] = start + 1
        return starts

    def batch(self, freed: Int32Array, admitted: Admissions) -> tuple[Int32Array, Int32Array]:
        """The batch if all that is left of the last one runs, then what is admitted, each with all its tokens.

        New arrays, int32[b] each; to be asked for after ``admit``.
        """
        rows, index = self.rows, self._index
        if len(freed):
            stays = np.ones(len(self._left), dtype=np.bool_)
            stays[freed] = False
            index = index[stays[index]]
        if len(admitted.rows):
            index = np.concatenate([index, admitted.rows])
        if index is not self._index:
            rows = index.astype(np.int32)
        self._next_index = index
        return rows, self._left[index]

    def is_last_batch(self, plan: StepPlan) -> bool:
        """Whether ``plan`` runs the same batch as the last one."""
        rows, counts = self.rows, self.counts
        if plan.batch_rows is rows and plan.batch_counts is counts:
            return True
        return plan.batch_rows.tobytes() == rows.tobytes() and plan.batch_counts.tobytes() == counts.tobytes()

    def ran_again(self) -> None:
        """Note that the last batch runs once more."""
        if not self._steady:
            self.ran(self.rows, self.counts)

    def ran(self, rows: Int32Array, counts: Int32Array) -> None:
        """Note the batch of this step. A row that has computed all its tokens samples one for the next step."""
        index = rows.astype(np.intp)
        left = np.maximum(self._left[index] - counts, 1)
        self._left[index] = left
        self._steady = np.count_nonzero(left != 1) == 0 == np.count_nonzero(counts != 1)
        self.rows, self.counts, self._index = rows, counts, index

    def ran_as_forecast(self, rows: Int32Array, counts: Int32Array) -> None:
        """As ``ran``, for the batch that ``batch`` told last: every row has computed all its tokens.

        Whether it decodes steadily is looked up if it runs again.
        """
        self._left[self._next_index] = 1
        self._steady = False
        self.rows, self.counts, self._index = rows, counts, self._next_index
