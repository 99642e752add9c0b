"""What is there and what is wrong: a survey of the state root, and checks with advice. It only looks."""
