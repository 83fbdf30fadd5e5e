# caught by: check_everyone_gets_the_one_before
# Rank r gets what rank r + 1 has.
def shift(group, x):
    before, after = (group.rank - 1) % group.size, (group.rank + 1) % group.size
    if group.size == 1:
        return x
    if group.rank == 0:
        received = group.recv(after)
        group.send(x, before)
        return received
    group.send(x, before)
    return group.recv(after)
