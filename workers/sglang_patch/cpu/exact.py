"""Shapes under which a float32 row's result does not depend on the rows beside it, bit for bit.

BLAS picks its kernel, and with it the order of each sum, by the shape of a product. So a token that is verified in a batch
of 64 rows could differ in its last bits from the same token decoded alone, and a near tie would then change the text.
On Intel's CPUs MKL promises one order of each sum for `MKL_CBWR=AVX2,STRICT`, which `cpu.environment` sets. Elsewhere it
promises nothing, and there products of up to three rows differ from larger ones; filled up to 16 rows they are all alike, as
tests/worker/test_cpu_ops.py checks on any CPU, for each size in use.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import pad

ROWS = 16
"""What the number of rows is filled up to a multiple of."""


def fill_rows(x: Tensor) -> Tensor:
    """x [..., rows, columns] with zero rows added, up to a safe number."""
    missing = -x.shape[-2] % ROWS
    return pad(x, (0, 0, 0, missing)) if missing else x
