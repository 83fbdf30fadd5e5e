"""GPT-2 in NumPy, and the ways in which large GPTs are split over many GPUs.

The rooms, from top to bottom; each imports only from those above it. See README.md for the map.
"""
