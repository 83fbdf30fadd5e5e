"""The parallel strategies. Each is a split and a conjugate pair; model.py composes them."""
