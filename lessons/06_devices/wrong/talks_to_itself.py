# caught by: check_a_group_of_one
# A ring of one has a next rank, too: itself.
def shift(group, x):
    before, after = (group.rank - 1) % group.size, (group.rank + 1) % group.size
    if group.rank:
        group.send(x, after)
        return group.recv(before)
    received = group.recv(before)
    group.send(x, after)
    return received
