"""Gated attention: the arithmetic (``attention``), the module (``multihead``), attaching it to models (``attach``)."""
