# caught by: check_cut_character
# The bytes of a text are always UTF-8.
def decode(ids, vocab):
    return b"".join(vocab[i] for i in ids).decode()
