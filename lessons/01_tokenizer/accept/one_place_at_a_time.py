# Only the leftmost place of the pair is merged before looking again; a stack instead of a place i.
def merge_pair(ids, pair, new_id):
    merged = []
    for i in ids:
        if merged and merged[-1] is not None and (merged[-1], i) == pair:
            merged[-1:] = [new_id, None]  # None: nothing joins what was merged
        else:
            merged.append(i)
    return [i for i in merged if i is not None]


def bpe_encode(data, merges):
    ids = [*data]
    while True:
        ranks = [(merges[pair], i) for i, pair in enumerate(zip(ids, ids[1:])) if pair in merges]
        if not ranks:
            return ids
        new, i = min(ranks)
        ids[i : i + 2] = [new]
