"""How well a model does on the user's labels, beside its conversion, and whether a difference is chance."""

from mxamp.evaluation.evaluate import evaluate
from mxamp.evaluation.evaluation import Evaluation, MetricComparison
from mxamp.evaluation.metrics import METRICS, Metric, find_metric

__all__ = ["METRICS", "Evaluation", "Metric", "MetricComparison", "evaluate", "find_metric"]
