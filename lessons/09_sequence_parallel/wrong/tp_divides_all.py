# caught by: check_bytes_with_tensor_parallelism
# Tensor parallelism divides all activations by t.
def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    sbh, scores = seq * micro_batch * n_embd, 5 * n_head * seq**2 * micro_batch
    if recompute != "none":
        scores = 0
    return (2 * sbh if recompute == "full" else 34 * sbh + scores) / tp
