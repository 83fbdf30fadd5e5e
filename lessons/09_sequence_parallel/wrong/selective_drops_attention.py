# caught by: check_bytes_with_selective_recomputation
# Selective recomputation drops the attention block.
def activation_bytes(
    seq, micro_batch, n_embd, n_head, tp=1, sequence_parallel=False, recompute="none"
):
    sbh, scores = seq * micro_batch * n_embd, 5 * n_head * seq**2 * micro_batch
    if recompute != "none":
        scores = 0
    if recompute == "full":
        return 2 * sbh / (tp if sequence_parallel else 1)
    if recompute == "selective":
        return 23 * sbh / tp if sequence_parallel else 7 * sbh + 16 * sbh / tp
    return 10 * sbh / (tp if sequence_parallel else 1) + (24 * sbh + scores) / tp
