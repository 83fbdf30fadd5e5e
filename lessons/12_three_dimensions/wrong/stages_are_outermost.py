# caught by: check_stages_and_copies
# Every program numbers its ranks as Megatron-LM does: tp, then dp, then pp.
def rank_coordinates(rank, dp, pp, tp):
    return rank // tp % dp, rank // (tp * dp), rank % tp
