# caught by: check_rank_not_count
# Encoding repeats training: merge the most frequent pair.
from collections import Counter


def bpe_encode(data, merges):
    ids = list(data)
    while True:
        counts = Counter(pair for pair in zip(ids, ids[1:]) if pair in merges)
        if not counts:
            return ids
        pair, merged, i = counts.most_common(1)[0][0], [], 0
        while i < len(ids):
            found = tuple(ids[i : i + 2]) == pair
            merged.append(merges[pair] if found else ids[i])
            i += 2 if found else 1
        ids = merged
