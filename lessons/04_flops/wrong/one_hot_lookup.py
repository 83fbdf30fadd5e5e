# caught by: check_a_step_of_175b
# Looking up an embedding is a matmul with a one-hot matrix.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    block = 24 * batch * seq * n_embd**2 + 4 * batch * seq**2 * n_embd
    return 3 * (n_layer * block + 2 * 2 * batch * seq * n_embd * n_vocab)
