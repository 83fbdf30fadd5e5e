# caught by: check_cut_character
# Bytes that cannot be read are noise.
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode("utf-8", errors="ignore")
