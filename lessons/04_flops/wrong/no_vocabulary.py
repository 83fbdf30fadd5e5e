# caught by: check_a_tiny_model
# The bracket of the published formula ends after the attention term: 72BsLh²(1 + s/6h).
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    return 72 * batch * seq * n_layer * n_embd**2 * (1 + seq / (6 * n_embd))
