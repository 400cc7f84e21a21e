"""A target for each parser, in a module of its own."""
