# caught by: check_a_tiny_model
# Six times the parameters is the whole cost.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    n_params = 12 * n_layer * n_embd**2 + n_vocab * n_embd
    return 6 * batch * seq * n_params
