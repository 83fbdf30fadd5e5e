# caught by: check_what_a_device_counts_for_a_model
# A causal mask hides half of the scores, so half of them is not computed.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    block = 24 * batch * seq * n_embd**2 + 2 * batch * seq**2 * n_embd
    return 3 * (n_layer * block + 2 * batch * seq * n_embd * n_vocab)
