# caught by: check_a_small_product
# One multiply-add is one operation.
def linear_flops(n, d_in, d_out):
    return n * d_in * d_out, 2 * n * d_in * d_out
