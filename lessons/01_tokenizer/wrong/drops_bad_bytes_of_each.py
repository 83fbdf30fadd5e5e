# caught by: check_character_over_two_tokens
# What a token cannot show alone is noise.
def decode(ids, vocab):
    return "".join(vocab[i].decode("utf-8", errors="ignore") for i in ids)
