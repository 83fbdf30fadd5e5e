# caught by: check_tail_is_kept
# Every id has a neighbour to compare it with.
def merge_pair(ids, pair, new_id):
    merged, i = [], 0
    while i < len(ids):
        if (ids[i], ids[i + 1]) == pair:
            merged.append(new_id)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged
