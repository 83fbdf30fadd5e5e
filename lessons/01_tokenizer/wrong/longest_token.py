# caught by: check_earliest_merge_wins
# A vocabulary is a dictionary: take the longest entry that fits.
def bpe_encode(data, merges):
    tokens = {bytes([i]): i for i in range(256)}
    names = {i: name for name, i in tokens.items()}
    for (left, right), new in merges.items():
        names[new] = names[left] + names[right]
        tokens[names[new]] = new
    ids, start = [], 0
    while start < len(data):
        end = next(e for e in range(len(data), start, -1) if data[start:e] in tokens)
        ids.append(tokens[data[start:end]])
        start = end
    return ids
