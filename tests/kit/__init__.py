"""Tools that several test packages share: the virtual scheduler, leak checks, small actors."""
