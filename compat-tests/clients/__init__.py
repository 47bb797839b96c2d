"""Other people's clients, each with the same few things that it can be asked to do."""
