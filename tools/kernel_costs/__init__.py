"""What the built-in targets say of kernels: timed, fitted and corrected, one program each.

    python -m tools.kernel_costs.collect TARGET.json --timings kernels.jsonl --seconds 3600
    python -m tools.kernel_costs.networks TARGET.json resnet34_v1 mobilenet0.5:8 --timings kernels.jsonl
    python -m tools.kernel_costs.hours TARGET.json --timings kernels.jsonl -o even.jsonl
    python -m tools.kernel_costs.amounts TARGET.json relaid gathered --timings even.jsonl
    python -m tools.kernel_costs.rates TARGET.json --timings even.jsonl
    python -m tools.kernel_costs.level TARGET.json found.json
    python -m tools.kernel_costs.corrections TARGET.json --timings even.jsonl

``mxamp probe`` measures a machine in minutes; these make the best of hours.
"""
