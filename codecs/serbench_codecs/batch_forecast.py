"""What both ends of ``columnar`` know: where a row's next block goes, and which batch is to be expected.

It does not know the layout of a payload. A forecast needs no scheduler: it may be wrong, and then the batch is sent.
"""

import numpy as np

from serbench_codecs.plan import NO_ROWS, Admissions, Int32Array, StepPlan
from serbench_codecs.table import TableLimits


class BatchForecast:
    """Follows the plans of a session. Its two copies, fed with the same plans, stay equal.

    ``num_blocks`` int32[rows]: blocks that each row holds. ``rows`` and ``counts``: the last batch, the plan's objects.
    """

    def __init__(self, limits: TableLimits) -> None:
        self.num_blocks = np.zeros(limits.max_num_seqs, dtype=np.int32)
        self.rows: Int32Array = NO_ROWS
        self.counts: Int32Array = NO_ROWS
        self._left = np.zeros(limits.max_num_seqs, dtype=np.int32)  # tokens that the next step could compute
        self._steady = (
            False  # every row of the batch computes its only token, so the next step leaves things as they are
        )

    def admit(self, admitted: Admissions) -> None:
        """Note how many blocks and uncomputed tokens the admitted rows have."""
        self.num_blocks[admitted.rows] = np.diff(admitted.block_ids.offsets)
        self._left[admitted.rows] = np.diff(admitted.token_ids.offsets) - admitted.num_computed_tokens
        self._steady = False

    def expected(self, freed: Int32Array, admitted: Admissions) -> tuple[Int32Array, Int32Array]:
        """The batch if all that is left of the last one runs, then what is admitted, each with all its tokens.

        New arrays, int32[b] each; to be called after ``admit``.
        """
        rows = self.rows
        if len(freed) or len(admitted):
            stays = np.ones(len(self.num_blocks), dtype=np.bool_)
            stays[freed] = False
            stays[admitted.rows] = False
            rows = np.concatenate([rows[stays[rows]], admitted.rows])
        return rows, self._left[rows]

    def ran(self, rows: Int32Array, counts: Int32Array) -> None:
        """Note the batch of this step. A row that has computed all its tokens samples one for the next step."""
        if self._steady and rows is self.rows and counts is self.counts:
            return
        left = np.maximum(self._left[rows] - counts, 1)
        self._left[rows] = left
        self._steady = bool((left == 1).all() and (counts == 1).all())
        self.rows, self.counts = rows, counts

    def is_last_batch(self, plan: StepPlan) -> bool:
        """Whether ``plan`` runs the same batch as the last one."""
        if plan.batch_rows is self.rows and plan.batch_counts is self.counts:
            return True
        return plan.batch_rows.tobytes() == self.rows.tobytes() and plan.batch_counts.tobytes() == self.counts.tobytes()
