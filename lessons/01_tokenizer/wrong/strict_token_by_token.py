# caught by: check_character_over_two_tokens
# A token is a piece of text.
def decode(ids, vocab):
    return "".join(vocab[i].decode() for i in ids)
