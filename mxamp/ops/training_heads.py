"""Training heads: what the last layer of a Module is read by, beside a label."""

from __future__ import annotations

TRAINING_HEADS = frozenset(
    {
        "LinearRegressionOutput",
        "LogisticRegressionOutput",
        "MAERegressionOutput",
        "SVMOutput",
        "Softmax",
        "SoftmaxOutput",
    }
)
"""By all their names."""

LABEL = 1
"""The number of the input that is the label."""
