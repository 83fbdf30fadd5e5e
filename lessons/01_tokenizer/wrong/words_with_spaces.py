# caught by: check_ascii
# Tokens are words, and between words there is a space.
def decode(ids, vocab):
    return b" ".join(vocab[i] for i in ids).decode("utf-8", errors="replace")
