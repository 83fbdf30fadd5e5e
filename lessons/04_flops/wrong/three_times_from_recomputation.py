# caught by: check_a_product_of_two_numbers
# Training costs three times the forward pass because backward runs it again.
def linear_flops(n, d_in, d_out):
    forward = 2 * n * d_in * d_out
    return forward, 3 * forward
