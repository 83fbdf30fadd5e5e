# caught by: check_sum_stays_in_its_array
# a = a + b is a += b.
def accumulate(sums, grads):
    for name, g in grads.items():
        sums[name] = sums[name] + g if name in sums else g
