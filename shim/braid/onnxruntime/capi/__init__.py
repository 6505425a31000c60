"""Where onnxruntime has its exceptions."""
