"""FP16 on a GPU: files made here, measured there, with nothing but ONNX Runtime or PyTorch."""
