"""What the suite `sessions` measures with: boards that only print, hosted many to a process, and readers that count."""
