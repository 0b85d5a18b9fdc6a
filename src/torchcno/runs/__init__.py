"""What a user does: train, go on, evaluate, predict, audit, search, export."""
