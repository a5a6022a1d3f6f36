"""Physical removal of heads: which heads a smaller model still has, and the surgery on its weights."""
