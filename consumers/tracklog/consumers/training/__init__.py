"""What finished trajectories were, a row each, and what models can be trained on."""
