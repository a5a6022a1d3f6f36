"""Gated attention: the computation (``attention``), the module (``multihead``), attaching to models (``attach``)."""
