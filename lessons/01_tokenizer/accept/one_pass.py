# One pass over all merges in the order learnt: no merge makes a pair that was learnt earlier.
def bpe_encode(data, merges):
    ids = list(data)
    for pair, new in merges.items():
        i = 0
        while i < len(ids) - 1:
            if (ids[i], ids[i + 1]) == pair:
                ids[i : i + 2] = [new]
            i += 1
    return ids


def decode(ids, vocab):
    data = bytearray()
    for i in ids:
        data.extend(vocab[i])
    return str(data, "utf-8", "replace")
