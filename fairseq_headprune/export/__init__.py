"""A way out to other programs: CTranslate2 and ONNX."""
