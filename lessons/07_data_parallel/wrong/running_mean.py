# caught by: check_sums_by_name
# Several gradients of a weight are averaged.
def accumulate(sums, grads):
    for name, g in grads.items():
        if name in sums:
            sums[name] += g
            sums[name] /= 2
        else:
            sums[name] = g
