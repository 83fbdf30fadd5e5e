# caught by: check_character_over_two_tokens
# A byte is a character.
def decode(ids, vocab):
    return "".join(chr(byte) for i in ids for byte in vocab[i])
