# caught by: check_earliest_merge_wins
# Read from left to right and merge whatever known pair comes first.
def bpe_encode(data, merges):
    ids, i = list(data), 0
    while i < len(ids) - 1:
        if (ids[i], ids[i + 1]) in merges:
            ids[i : i + 2] = [merges[ids[i], ids[i + 1]]]
            i = 0
        else:
            i += 1
    return ids
