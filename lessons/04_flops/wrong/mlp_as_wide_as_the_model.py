# caught by: check_attention_grows_with_the_square
# A block is attention's four matrices [h, h] and the MLP's two.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    block = 2 * 6 * batch * seq * n_embd**2 + 4 * batch * seq**2 * n_embd
    return 3 * (n_layer * block + 2 * batch * seq * n_embd * n_vocab)
