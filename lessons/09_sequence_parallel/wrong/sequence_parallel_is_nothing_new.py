# caught by: check_bytes_with_sequence_parallelism
# Sequence parallelism is about communication, the memory is tensor parallelism's.
def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    sbh, scores = seq * micro_batch * n_embd, 5 * n_head * seq**2 * micro_batch
    if recompute != "none":
        scores = 0
    if recompute == "full":
        return 2 * sbh
    return 10 * sbh + (24 * sbh + scores) / tp
