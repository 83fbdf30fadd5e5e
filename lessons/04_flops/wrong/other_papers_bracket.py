# caught by: check_a_step_of_175b
# V/16Lh belongs in both published formulas.
def model_flops(batch, seq, n_layer, n_embd, n_vocab):
    bracket = 1 + seq / (6 * n_embd) + n_vocab / (16 * n_layer * n_embd)
    return 72 * batch * seq * n_layer * n_embd**2 * bracket
