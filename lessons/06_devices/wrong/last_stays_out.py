# caught by: check_everyone_gets_the_one_before
# A chain has two ends: rank 0 receives nothing, the last rank sends nothing.
def shift(group, x):
    received = group.recv(group.rank - 1) if group.rank > 0 else x
    if group.rank + 1 < group.size:
        group.send(x, group.rank + 1)
    return received
