# caught by: check_run_of_equal_tokens
# After a match the loop goes on with the next id, as always.
def merge_pair(ids, pair, new_id):
    merged = []
    i = 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new_id)
        else:
            merged.append(ids[i])
        i += 1
    return merged
