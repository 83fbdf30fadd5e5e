# caught by: check_token_rows
# Numbers of a column lie next to each other if one asks for it.
def merge_heads(y):
    h, n, e = y.shape
    return y.swapaxes(0, 1).reshape(n, h * e, order="F")
