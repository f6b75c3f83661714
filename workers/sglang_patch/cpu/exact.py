"""Shapes under which a float32 row's result does not depend on the rows beside it.

BLAS picks its kernel, and with it the order of each sum, by the shape of the whole product: a token verified in a
batch of 64 rows may differ in its last bits from the same token decoded alone, and a near tie then changes the text.
With shapes held to the ones below, results are the same bit for bit; measured with torch's MKL on AVX2, on one and two
threads, for contexts of up to about 640 tokens. Beyond that, attention may differ in its last bits.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

_ROWS = 8  # the rows that one kernel takes at a time; what is left over would take another kernel
_BLOCK = 192  # longer sums are split into blocks of this length


def fill_rows(x: Tensor) -> Tensor:
    """x [..., rows, columns] with zero rows added, up to a safe number."""
    missing = -x.shape[-2] % _ROWS
    return pad(x, (0, 0, 0, missing)) if missing else x


def length(longest: int) -> int:
    """The safe length at or above `longest` for a dimension that is summed over."""
    step = 32 if longest <= _BLOCK else _BLOCK
    return -(-longest // step) * step
