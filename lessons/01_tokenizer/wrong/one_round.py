# caught by: check_merges_build_on_merges
# Look up every pair of bytes once.
def bpe_encode(data, merges):
    ids, i = [], 0
    known = {pair: new for pair, new in merges.items() if max(pair) < 256}
    data = list(data)
    while i < len(data):
        pair, after = tuple(data[i : i + 2]), tuple(data[i + 1 : i + 3])
        if pair in known and known[pair] <= known.get(after, 10**9):
            ids.append(known[pair])
            i += 2
        else:
            ids.append(data[i])
            i += 1
    return ids
