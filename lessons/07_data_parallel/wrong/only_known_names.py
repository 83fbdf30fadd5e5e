# caught by: check_sums_by_name
# What has no sum yet has nothing to be added to.
def accumulate(sums, grads):
    for name in sums:
        if name in grads:
            sums[name] += grads[name]
