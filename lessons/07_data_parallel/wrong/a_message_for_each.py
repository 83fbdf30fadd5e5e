# caught by: check_one_message_that_goes_on_behind
# Many small messages are as good as a large one.
def all_reduce(grads, dp):
    works = {name: dp.all_reduce(g, async_op=True) for name, g in grads.items()}
    return lambda: {name: work.wait() for name, work in works.items()}
