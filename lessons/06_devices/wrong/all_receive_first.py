# caught by: check_everyone_gets_the_one_before
# To be safe, be ready to receive before anything is sent.
def shift(group, x):
    if group.size == 1:
        return x
    received = group.recv((group.rank - 1) % group.size)
    group.send(x, (group.rank + 1) % group.size)
    return received
