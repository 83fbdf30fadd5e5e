# caught by: check_tp_groups_stay_in_a_node
# Ranks next to each other hold the same weights.
def rank_coordinates(rank, dp, pp, tp):
    return rank % dp, rank // (dp * tp), rank // dp % tp
