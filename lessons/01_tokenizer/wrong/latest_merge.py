# caught by: check_earliest_merge_wins
# The merge learnt last makes the longest token, so it goes first.
def bpe_encode(data, merges):
    ids = list(data)
    while known := [pair for pair in zip(ids, ids[1:]) if pair in merges]:
        pair = max(known, key=merges.get)
        i = list(zip(ids, ids[1:])).index(pair)
        ids[i : i + 2] = [merges[pair]]
    return ids
