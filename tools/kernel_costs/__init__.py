"""What the built-in targets say of kernels: timed, fitted and corrected, one program each.

    python -m tools.kernel_costs.collect TARGET.json --timings kernels.jsonl --seconds 3600
    python -m tools.kernel_costs.networks TARGET.json resnet34_v1 mobilenet0.5:8 --timings kernels.jsonl
    python -m tools.kernel_costs.amounts TARGET.json relaid gathered --timings kernels.jsonl
    python -m tools.kernel_costs.rates TARGET.json --timings kernels.jsonl
    python -m tools.kernel_costs.corrections TARGET.json --timings kernels.jsonl

``mxamp probe`` measures a machine in minutes; these make the best of hours.
"""
