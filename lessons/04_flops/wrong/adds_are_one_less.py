# caught by: check_what_a_device_counts_for_a_product
# A sum of k numbers takes k - 1 adds.
def linear_flops(n, d_in, d_out):
    def product(m, k, n):
        return m * n * (2 * k - 1)

    return product(n, d_in, d_out), product(n, d_out, d_in) + product(d_in, n, d_out)
