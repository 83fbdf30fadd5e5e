# caught by: check_everyone_gets_the_one_before
# Sending puts the array on the network and goes on.
def shift(group, x):
    if group.size == 1:
        return x
    group.send(x, (group.rank + 1) % group.size)
    return group.recv((group.rank - 1) % group.size)
