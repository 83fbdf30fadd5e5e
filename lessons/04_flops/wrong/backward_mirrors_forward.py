# caught by: check_a_small_product
# The backward pass mirrors the forward pass, so it costs the same.
def linear_flops(n, d_in, d_out):
    return 2 * n * d_in * d_out, 2 * n * d_in * d_out
