# caught by: check_more_tokens_than_heads
# Heads are alternatives: take their mean.
import numpy as np


def merge_heads(y):
    return np.tile(y.mean(axis=0), len(y))
