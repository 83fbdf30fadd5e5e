# caught by: check_what_a_device_counts_for_a_model
# All n = batch * seq tokens of the batch attend to each other.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    n = batch * seq
    block = 24 * n * n_embd**2 + 4 * n**2 * n_embd
    return 3 * (n_layer * block + 2 * n * n_embd * n_vocab)
