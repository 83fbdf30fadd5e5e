# caught by: check_run_of_equal_tokens
# A for loop over all pairs of neighbours writes an id for each.
def merge_pair(ids, pair, new_id):
    merged = []
    for i in range(len(ids) - 1):
        merged.append(new_id if (ids[i], ids[i + 1]) == pair else ids[i])
    return merged
