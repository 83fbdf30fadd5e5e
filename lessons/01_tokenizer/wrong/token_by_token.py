# caught by: check_character_over_two_tokens
# Every token is a piece of text, so each can be read on its own.
def decode(ids, vocab):
    return "".join(vocab[i].decode("utf-8", errors="replace") for i in ids)
