"""Densities, likelihoods, histograms and samples without replacement."""

from __future__ import annotations

from mxamp.dtypes import DType
from mxamp.ops.roles import ValueKind
from mxamp.ops.tables._notation import SAME, record

COMPUTE = ValueKind.COMPUTE
GENERATE = ValueKind.GENERATE

_PARAMETERS = {
    "uniform": 2,
    "normal": 2,
    "gamma": 2,
    "exponential": 1,
    "poisson": 1,
    "negative_binomial": 2,
    "generalized_negative_binomial": 2,
    "dirichlet": 1,
}
"""Distribution -> how many parameters follow the sample."""

RECORDS = (
    *(
        record(f"_random_pdf_{name} random_pdf_{name}", " ".join(["data"] * (1 + count)), COMPUTE)
        for name, count in _PARAMETERS.items()
    ),
    # Samples, and how many were drawn for them.
    record("_sample_unique_zipfian", "", GENERATE, out=DType.INT64, seeds=(0, 1)),
    # data, edges (where bin_cnt gives no number). Counts, and edges in the data's dtype.
    record("_histogram _npi_histogram", "data data", COMPUTE, out=(DType.INT64, SAME), seeds=(0,)),
    # Intensities and times; the sixth holds the numbers of the marks, which type inference wants as INT32.
    record(
        *("_contrib_hawkesll", "data data data data data index data data", COMPUTE),
        named="output out_state",
    ),
)
