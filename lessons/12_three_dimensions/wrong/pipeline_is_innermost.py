# caught by: check_tp_groups_stay_in_a_node
# Consecutive ranks are consecutive stages.
def rank_coordinates(rank, dp, pp, tp):
    return rank // (pp * tp), rank % pp, rank // pp % tp
