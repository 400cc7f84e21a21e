"""Suite `commands`: daily tasks at the command line, beside mpremote."""
