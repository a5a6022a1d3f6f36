"""Export to other programs: CTranslate2, ONNX and Hugging Face."""
