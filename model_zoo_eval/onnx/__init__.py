"""The zoo in ONNX: every model exported, run in ONNX Runtime and held against MXNet."""
