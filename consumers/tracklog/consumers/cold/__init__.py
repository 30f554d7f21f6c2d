"""What is done with the cold tier besides writing it: checked, counted, kept well."""
