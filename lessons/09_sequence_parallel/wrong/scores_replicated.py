# caught by: check_bytes_with_tensor_parallelism
# Attention scores are made from replicated inputs, so they are replicated.
def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    sbh, scores = seq * micro_batch * n_embd, 5 * n_head * seq**2 * micro_batch
    if recompute != "none":
        scores = 0
    if recompute == "full":
        return 2 * sbh / (tp if sequence_parallel else 1)
    if sequence_parallel:
        return (34 * sbh + scores) / tp
    return 10 * sbh + 24 * sbh / tp + scores
