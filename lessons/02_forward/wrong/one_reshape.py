# caught by: check_token_rows
# The sizes fit, so one reshape does it.
def merge_heads(y):
    h, n, e = y.shape
    return y.reshape(n, h * e)
