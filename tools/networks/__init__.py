"""Networks of kinds that GluonCV's zoo does not have, written for the benchmark; their weights are random."""
